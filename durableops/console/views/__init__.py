"""The views, one module for each place: look up, check, call one function, answer."""

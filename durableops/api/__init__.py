"""The JSON way in for other systems: look up, check, call one function, answer. Verbs live in the engine."""

"""One module for each benchmark, named as on the command line; each has `measure(place, **sizes) -> Result`."""

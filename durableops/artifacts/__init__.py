"""Files of runs: their bytes in Django's storage, the rows of files that nothing names, links that expire."""

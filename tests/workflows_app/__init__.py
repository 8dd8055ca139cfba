"""An app with scripted workflows, for DURABLEOPS_APPS: each run does what its input says, line by line."""

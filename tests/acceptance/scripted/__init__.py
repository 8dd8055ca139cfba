"""An app with scripted workflows: they mark what they do in files, and wait for files that a test makes."""

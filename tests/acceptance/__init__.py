"""Promises proved on real processes: `manage.py worker` and `upkeep`, real signals, real servers."""

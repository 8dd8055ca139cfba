"""Bulk actions: one verb for many runs, captured at a preview, executed one run at a time, each exactly once."""

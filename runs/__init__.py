"""The record: every table, the states of a run, and the only writers of state. Never imports `durableops`."""

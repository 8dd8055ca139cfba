"""Limits that can fire: clocks and their causes. What enforces them lives in `engine` and `upkeep`."""

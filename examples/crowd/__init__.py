"""One tenant with ten thousand runs beside many with a few: a drill about fairness."""

from __future__ import annotations

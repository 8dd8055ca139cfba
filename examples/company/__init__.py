"""Runs that keep a drill's own run company in its workers, plain and async; every errand of theirs is accounted for."""

from __future__ import annotations

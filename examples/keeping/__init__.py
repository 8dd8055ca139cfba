"""Runs of every state and age, each held by something or by nothing, and a cleaner that is killed: a drill."""

from __future__ import annotations

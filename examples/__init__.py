"""Example workflows and the downstream service they call; none of it is needed to run durableops."""

from __future__ import annotations

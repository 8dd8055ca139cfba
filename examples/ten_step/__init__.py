"""A workflow of ten short steps with everything a drill wants to interrupt: calls, an approval, an awaited event."""

from __future__ import annotations

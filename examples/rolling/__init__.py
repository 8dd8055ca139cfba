"""Three versions of one workflow, deployed one after the other over runs of the older ones: a drill."""

from __future__ import annotations

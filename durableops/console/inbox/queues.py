"""Every queue there is, by being imported here: `frame.queues` then knows it."""

from __future__ import annotations

from durableops.console.inbox import doubts as doubts

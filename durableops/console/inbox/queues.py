"""Every queue there is, by being imported here: `frame.queues` then knows it."""

from __future__ import annotations

from durableops.console.inbox import approvals as approvals
from durableops.console.inbox import compensation as compensation
from durableops.console.inbox import doubts as doubts
from durableops.console.inbox import reviews as reviews
from durableops.console.inbox import undelivered as undelivered

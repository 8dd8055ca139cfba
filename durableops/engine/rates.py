"""Which rates and budgets a tenant has: the policies, as this process read them within the last second."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durableops.authoring.definitions import ToolDefinition
from durableops.clock import monotonic
from durableops.limits.rate_limits import DEFAULT_SHARES, Rate, limiter

FRESH_SECONDS = 0.9
"""A changed policy holds within a second."""
_POLICIES = """
SELECT p.tenant_id, p.resource, p.starts_per_minute, p.call_rates, p.priority_min, p.priority_max,
    p.budgets,
    (SELECT count(*) FROM runs_worker w WHERE w.ended_at IS NULL)
FROM runs_quota_policy p"""

type Fetch = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""


@dataclass(kw_only=True)
class _Known:
    at: float = -1e9
    starts: dict[int, int] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)
    calls: dict[int, dict[str, int]] = field(default_factory=dict)
    priorities: dict[int, tuple[int, int]] = field(default_factory=dict)
    budgets: dict[int, frozenset[tuple[str, str]]] = field(default_factory=dict)


_known = _Known()
_reading = threading.Lock()


def is_fresh() -> bool:
    """Whether the policies need not be read."""
    return monotonic() - _known.at < FRESH_SECONDS


def refresh(fetch: Fetch) -> None:
    """Read the policies, unless another thread just did."""
    global _known  # replaced as a whole, so that no reader sees half of it
    with _reading:
        if is_fresh():
            return
        began, found = monotonic(), _Known()
        for tenant_id, resource, starts, calls, lowest, highest, budgets, workers in fetch(_POLICIES):
            limiter.shares = max(DEFAULT_SHARES, 2 * workers)
            if tenant_id is None:
                found.resources |= {} if starts is None else {resource: starts}
                continue
            found.starts |= {} if starts is None else {tenant_id: starts}
            found.calls[tenant_id] = _document(calls)
            limited = frozenset((period, unit) for period, units in _document(budgets).items() for unit in units)
            found.budgets |= {tenant_id: limited} if limited else {}
            found.priorities[tenant_id] = lowest, highest
        found.at = began
        _known = found


def _document(found: Any) -> Any:
    """Of a connection that reads JSON, or of one that does not."""
    return json.loads(found) if isinstance(found, str) else found


def forget() -> None:
    """Let the next question read the policies: this process has just changed one."""
    global _known
    _known = _Known()


def of_start(tenant_id: int) -> list[Rate]:
    """What limits new runs of a tenant."""
    limit = _known.starts.get(tenant_id)
    return [] if limit is None else [Rate(name=f"starts:{tenant_id}", per_minute=limit)]


def priority_of(tenant_id: int, asked: int) -> int:
    """A priority, brought into the range the tenant may use."""
    lowest, highest = _known.priorities.get(tenant_id, (asked, asked))
    return max(lowest, min(highest, asked))


def of_resource(resource: str) -> list[Rate]:
    """What limits entries of steps that use a resource."""
    limit = _known.resources.get(resource)
    return [] if limit is None else [Rate(name=f"uses:{resource}", per_minute=limit)]


def of_call(tenant_id: int, tool: ToolDefinition) -> list[Rate]:
    """What limits calls of a tool: the tenant's limits for the tool and for its system."""
    limits = _known.calls.get(tenant_id)
    if not limits:
        return []
    names = [f"tool:{tool.name}", f"system:{tool.system or tool.name}"]
    return [Rate(name=f"calls:{tenant_id}:{name}", per_minute=limits[name]) for name in names if name in limits]


def budgets_of(tenant_id: int) -> frozenset[tuple[str, str]]:
    """Period and unit of each budget a tenant has."""
    return _known.budgets.get(tenant_id, frozenset())

"""Between query string, SQL and template: what was asked for, the links that keep it, the conditions it means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import QueryDict
from django.utils import timezone

from durableops.console import columns
from durableops.console.story import LIMBO_AFTER_SECONDS
from durableops.engine import firings
from durableops.limits.clocks import Clock
from runs.models import Tenant
from runs.states import OPEN, State

_TOKEN = re.compile(r'(-?)([a-z]+(?:\.[^\s:"]+)?):("(?:[^"\\]|\\.)*"|\S*)|(\S+)')
_SPAN = re.compile(r"(\d{1,4})\s*(m|h|d|w)")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
MAX_CONDITIONS = 20


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One qualifier with its value, as the chip shows it."""

    name: str
    value: str
    negated: bool = False
    wrong: str = ""
    """Why it cannot be understood; a filter with such a condition matches nothing."""

    def __str__(self) -> str:
        plain = self.value and not re.search(r'[\s"]', self.value)
        value = self.value if plain else json.dumps(self.value, ensure_ascii=False)
        return f"{'-' if self.negated else ''}{self.name}:{value}"


@dataclass(frozen=True, kw_only=True)
class View:
    """A system view: a name for conditions that nobody has to type."""

    name: str
    label: str
    states: tuple[str, ...] = ()
    sql: str = ""
    """A condition on the run `w`, looked at after the index has been walked."""
    among: str = ""
    """A condition on the run `r` that has an index of its own."""
    hot: str = ""
    """The state whose colour its count takes when it is not zero."""


_WAITS_FOR = "EXISTS (SELECT 1 FROM runs_wait v WHERE v.run_id = w.id AND v.state = 'open' AND v.kind IN ({}))"
INTERRUPTED = ("worker_lost", "worker_stopped", "step_timeout", "operator")
# Found from the receipts, which have an index for it, and not by looking at every run of the day.
_RESUMED = (
    "r.id IN (SELECT c.run_id FROM unnest(ARRAY[{}]) k(cause) CROSS JOIN LATERAL ("
    "SELECT d.run_id FROM runs_receipt d WHERE d.cause = k.cause AND d.resumed_at > now() - interval '24 hours'"
    " ORDER BY d.resumed_at DESC LIMIT 2000) c)"
).format(", ".join(f"'{cause}'" for cause in INTERRUPTED))

# Upkeep had its chance with whatever is older than this; the same questions as `upkeep.invariants.liveness`.
# What is asked of workers is asked once, not for each run.
_LIMBO = f"""CASE w.state
    WHEN 'waiting' THEN w.state_since < now() - interval '15 seconds' AND NOT EXISTS (
        SELECT 1 FROM runs_wait v WHERE v.run_id = w.id AND v.state = 'open')
    WHEN 'running' THEN w.state_since < now() - interval '15 seconds' AND w.worker_id NOT IN (
        SELECT k.id FROM runs_worker k WHERE k.ended_at IS NULL
        AND k.renewed_at > now() - (k.lease_seconds + 15) * interval '1 second')
    ELSE NOT w.paused AND w.due_at < now() - {LIMBO_AFTER_SECONDS} * interval '1 second' AND w.plan_id NOT IN (
        SELECT l.id FROM runs_workflow_plan l WHERE EXISTS (
            SELECT 1 FROM runs_worker k WHERE k.ended_at IS NULL AND NOT k.draining
            AND (k.plans IS NULL OR k.plans @> to_jsonb(l.id)))) END"""
CLOCKS = tuple(clock.value for clock in Clock)
# By the index of the clocks that fired; as many of the newest as engine.firings counts.
_FIRED = f"""r.id IN (SELECT e.run_id FROM (
    SELECT run_id, data FROM runs_event WHERE data ? 'phase' AND at > now() - interval '24 hours'
    ORDER BY at DESC, id DESC LIMIT {firings.MOST}) e
    WHERE e.data ->> 'clock' = {{p}})"""

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View(name="all", label="All"),
        View(name="open", label="Open", states=tuple(sorted(OPEN))),
        View(name="running", label="Running", states=(State.RUNNING,)),
        View(name="queued", label="Queued", states=(State.QUEUED,)),
        View(name="people", label="Waiting on people", states=(State.WAITING,),
             sql=_WAITS_FOR.format("'approval', 'file'"), hot="waiting"),
        View(name="systems", label="Waiting on systems", states=(State.WAITING,),
             sql=_WAITS_FOR.format("'event', 'poll', 'children', 'time'")),
        View(name="doubt", label="In doubt", states=(State.IN_DOUBT,), hot="in_doubt"),
        View(name="review", label="In review", states=(State.IN_REVIEW,), hot="in_review"),
        View(name="limbo", label="In limbo", states=(State.QUEUED, State.RUNNING, State.WAITING), sql=_LIMBO,
             hot="failed"),
        View(name="paused", label="Paused", states=tuple(sorted(OPEN)), sql="w.paused"),
        View(name="resumed", label="Resumed, 24 h", among=_RESUMED),
        View(name="timed-out", label="Timed out", states=(State.TIMED_OUT,)),
        View(name="failed", label="Failed", states=(State.FAILED,), hot="failed"),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What the conditions mean to the database. Values travel as parameters."""

    states: tuple[str, ...] = ()
    since: datetime | None = None
    among: str = ""
    where: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    tenants: tuple[str, ...] | None = None
    nothing: bool = False


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """The list as the URL describes it. Every link of the page is made from it, so that nothing is lost on the way."""

    view: View = VIEWS["all"]
    conditions: tuple[Condition, ...] = ()
    oldest_first: bool = False
    cursor: tuple[datetime, UUID] | None = None
    backwards: bool = False
    columns: tuple[str, ...] = ()
    """The columns that were chosen; none: the usual ones."""

    @classmethod
    def read(cls, query: QueryDict) -> RunFilter:
        """Read the query string; what cannot be understood becomes a condition that says so."""
        name, text = query.get("view", "all"), query.get("q", "")
        cursor = _cursor(query.get("after") or query.get("before") or "")
        return cls(
            view=VIEWS.get(name, VIEWS["all"]), conditions=tuple(parse(text)[:MAX_CONDITIONS]),
            oldest_first=query.get("sort") == "oldest", cursor=cursor, backwards="before" in query and bool(cursor),
            columns=columns.read(query.get("cols", "").split(",")),
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The conditions as they are typed."""
        return " ".join(str(condition) for condition in self.conditions)

    @property
    def query(self) -> str:
        """The query string of this very page."""
        given = [("view", self.view.name if self.view.name != "all" else ""), ("q", self.text),
                 ("sort", "oldest" if self.oldest_first else ""), ("cols", ",".join(self.columns))]  # fmt: skip
        if self.cursor:
            given.append(("before" if self.backwards else "after", f"{self.cursor[0].isoformat()}~{self.cursor[1]}"))
        return urlencode([(name, value) for name, value in given if value], safe=",")

    def first_page(self) -> RunFilter:
        return replace(self, cursor=None, backwards=False)

    def to_view(self, view: View) -> RunFilter:
        return replace(self.first_page(), view=view)

    def sorted_other_way(self) -> RunFilter:
        return replace(self.first_page(), oldest_first=not self.oldest_first)

    def at(self, cursor: tuple[datetime, UUID], *, backwards: bool) -> RunFilter:
        return replace(self, cursor=cursor, backwards=backwards)

    def with_text(self, more: str) -> RunFilter:
        """With further conditions; one that is there already stays once."""
        joined = [*self.conditions, *parse(more)]
        return replace(self.first_page(), conditions=tuple(dict.fromkeys(joined))[:MAX_CONDITIONS])

    def chips(self) -> list[tuple[Condition, str]]:
        """Each condition with the query string of the page without it."""
        return [
            (one, replace(self.first_page(), conditions=tuple(c for c in self.conditions if c is not one)).query)
            for one in self.conditions
        ]

    def links(self) -> list[tuple[View, str]]:
        """Each system view with its query string, the conditions kept."""
        return [(view, self.to_view(view).query) for view in VIEWS.values()]

    def scan(self) -> Scan:
        """The view and the conditions together."""
        scan = Scan(states=self.view.states, among=self.view.among, where=(self.view.sql,) if self.view.sql else ())
        for number, condition in enumerate(self.conditions):
            scan = _NARROW.get(condition.name.split(".")[0], _wrong)(scan, condition, f"p{number}")
        return scan


def parse(text: str) -> list[Condition]:
    """The conditions in a text. A bare word is part of a run's id, else a workflow's name."""
    found = []
    for match in _TOKEN.finditer(text.replace("\0", "")):
        minus, name, value, bare = match.groups()
        if bare is not None:
            found.append(_checked(Condition(name="id" if _looks_like_id(bare) else "workflow", value=bare)))
            continue
        if value.startswith('"'):
            try:
                value = json.loads(value)
            except ValueError:
                value = value.strip('"')
        found.append(_checked(Condition(name=name, value=value, negated=minus == "-")))
    return found


def _looks_like_id(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f-]{8,36}", text)) and any(letter.isdigit() for letter in text)


def _checked(condition: Condition) -> Condition:
    kind = condition.name.split(".")[0]
    if kind not in _NARROW or (kind == "label") != ("." in condition.name):
        return replace(condition, wrong="is not a qualifier")
    if not condition.value:
        return replace(condition, wrong="needs a value")
    if kind == "state" and condition.value not in set(State):
        return replace(condition, wrong="is not a state")
    if kind == "clock" and condition.value not in CLOCKS:
        return replace(condition, wrong=f"is no clock; there are {', '.join(CLOCKS)}")
    if kind == "since" and (condition.negated or _since(condition.value) is None):
        return replace(condition, wrong="wants a span such as 30m, 24h, 7d, or a date")
    return condition


def _since(value: str) -> datetime | None:
    if match := _SPAN.fullmatch(value):
        return timezone.now() - int(match[1]) * _UNITS[match[2]]
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def _cursor(text: str) -> tuple[datetime, UUID] | None:
    at, _, run_id = text.partition("~")
    try:
        found = datetime.fromisoformat(at), UUID(run_id)
    except ValueError:
        return None
    return None if timezone.is_naive(found[0]) else found


type Narrow = Callable[[Scan, Condition, str], Scan]


def _wrong(scan: Scan, condition: Condition, name: str) -> Scan:
    return replace(scan, nothing=True)


def _where(sql: str) -> Narrow:
    def narrow(scan: Scan, condition: Condition, name: str) -> Scan:
        if condition.wrong:
            return _wrong(scan, condition, name)
        clause = sql.replace("{p}", f"%({name})s")
        clause = f"NOT coalesce({clause}, false)" if condition.negated else clause
        return replace(scan, where=(*scan.where, clause), params={**scan.params, name: condition.value})

    return narrow


def _state(scan: Scan, condition: Condition, name: str) -> Scan:
    if condition.wrong:
        return _wrong(scan, condition, name)
    base = scan.states or tuple(sorted(State))
    kept = tuple(s for s in base if (s == condition.value) != condition.negated)
    return replace(scan, states=kept, nothing=scan.nothing or not kept)


def _tenant(scan: Scan, condition: Condition, name: str) -> Scan:
    if condition.negated:
        return _where("(SELECT n.slug FROM runs_tenant n WHERE n.id = w.tenant_id) = {p}")(scan, condition, name)
    return replace(scan, tenants=(*(scan.tenants or ()), condition.value))


def _since_when(scan: Scan, condition: Condition, name: str) -> Scan:
    since = _since(condition.value)
    return replace(scan, since=since) if since and not condition.wrong else _wrong(scan, condition, name)


def _clock(scan: Scan, condition: Condition, name: str) -> Scan:
    """Runs in which this clock fired within a day."""
    if condition.wrong:
        return _wrong(scan, condition, name)
    fired = _FIRED.replace("{p}", f"%({name})s")
    among = " AND ".join(filter(None, [scan.among, f"NOT ({fired})" if condition.negated else fired]))
    return replace(scan, among=among, params={**scan.params, name: condition.value})


def _label(scan: Scan, condition: Condition, name: str) -> Scan:
    if condition.wrong:
        return _wrong(scan, condition, name)
    _, _, label = condition.name.partition(".")
    narrowed = _where(f"w.labels ->> %({name}n)s = {{p}}")(scan, condition, name)
    return replace(narrowed, params={**narrowed.params, f"{name}n": label})


_NARROW: dict[str, Narrow] = {
    "workflow": _where("w.workflow = {p}"),
    "version": _where("(SELECT l.version::text FROM runs_workflow_plan l WHERE l.id = w.plan_id) = {p}"),
    "state": _state,
    "tenant": _tenant,
    "step": _where("w.step_id = {p}"),
    "error": _where("(w.error_class = {p} OR w.error_class LIKE '%%.' || {p} OR w.error_fingerprint = {p})"),
    "key": _where("w.start_key = {p}"),
    "label": _label,
    "since": _since_when,
    "clock": _clock,
    "id": _where("(w.id::text LIKE {p} || '%%' OR w.id::text LIKE '%%' || {p})"),
}


def tenants_of(scan: Scan, visible: list[Tenant]) -> list[int]:
    """The tenants to look in: those the person sees, narrowed by the filter."""
    return [tenant.pk for tenant in visible if scan.tenants is None or tenant.slug in scan.tenants]

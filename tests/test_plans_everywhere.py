"""Verb × surface: the plan that was shown is the plan that is executed, on pages, over the API, from the command line.

Each cell asks three times: without having seen a plan, with one whose facts have changed meanwhile, and with the one
that the refusal showed. Only the last may do anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from durableops import Migrated, State, migration, step, tool, workflow
from durableops.authoring import registry
from durableops.engine import reviewing as reviewing  # its bulk verb is known by being imported
from durableops.engine.bulk import capture
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb as bulk_verb
from durableops.engine.compensation import undoing
from durableops.engine.plans import plan_id
from runs.models import Bulk, IdempotencyRecord, Run, System, WorkflowPlan
from tests.api.clients import Caller, read
from tests.factories import make_doubt, make_effect, make_person, make_run, make_tenant, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db]


class Nothing(State):
    """What these runs know."""


@dataclass(kw_only=True)
class Cell:
    """One verb on one subject, as each surface names it."""

    subject: str
    """What it is about, for the command line."""
    runs: list[Run]
    page: str
    """Address of the dialog."""
    sends_to: str = ""
    """Where its form goes, if elsewhere."""
    plan: str = ""
    """Where the API shows the plan."""
    api: str = ""
    """What the API is asked."""
    operate: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    change: Callable[[], object] = lambda: None
    harmless: bool = False
    """Whether it sends nothing again, so that it may be asked for without its plan."""


@pytest.fixture
def code(own_registry: registry.Registry) -> WorkflowPlan:
    """Version 1, whose plan this is, and version 2, whose migration leaves the calls of version 1 behind."""
    undoing.install()

    @tool(safety="keyed", timeout=5, instructions="Call the hotel.")
    def book(call: Any) -> None:
        """Books a room."""

    def first(run: Any) -> None:
        """The step where all runs of these tests stand."""

    made = [
        workflow(name="trip", version=version, state=Nothing, migrate="reviewed")(
            type("Trip", (), {"first": step(id="first", tools=[book][: 2 - version])(first)})
        )
        for version in (1, 2)
    ]

    @migration(made[1], from_version=1)
    def leave_calls(old: dict[str, Any]) -> Migrated:
        return Migrated(state=old, effects={"first/book": None})

    with connection.cursor() as cursor:
        return WorkflowPlan.objects.get(pk=plan_id(cursor, registry.workflow("trip", 1)))


def trip(code: WorkflowPlan, *, state: str = "failed", effect: str = "intended", **over: Any) -> Run:
    """A run that has booked something, or tried to."""
    run = make_run(plan=code, state=state, **over)
    book(run, effect)
    return run


def book(run: Run, state: str = "intended") -> IdempotencyRecord:
    return make_effect(run, state=state, tool="book")


def on_run(run: Run, name: str, **over: Any) -> Cell:
    path = name.replace("_", "-")
    values: dict[str, Any] = {
        "subject": str(run.pk), "runs": [run], "page": reverse("console:run_verb", args=[run.pk, name]),
        "plan": f"/runs/{run.pk}/plans/{name}", "api": f"/runs/{run.pk}/{path}", "operate": path,
        "change": lambda: book(run, "succeeded" if name in ("migrate", "compensate") else "intended"),
    }  # fmt: skip
    return Cell(**(values | over))


def at_checkpoint(run: Run, name: str) -> Cell:
    made = on_run(run, name, body={"checkpoint": 0}, words=("--checkpoint", "0"))
    made.page = reverse("console:branch", args=[run.pk, 0, name.replace("_", "-")])
    made.plan += "?checkpoint=0"
    return made


def on_many(runs: list[Run], name: str, state: str, **arguments: Any) -> Cell:
    chosen = Selection(words="these", ids=[run.pk for run in runs])
    made = capture.preview(bulk_verb(name), chosen, tenant=runs[0].tenant, actor="ann", arguments=arguments)
    return Cell(
        subject=str(made.pk), runs=runs, page=reverse("console:bulk", args=[made.pk]),
        sends_to=reverse("console:bulk_verb", args=[made.pk, "start"]), plan=f"/bulks/{made.pk}",
        api=f"/bulks/{made.pk}/start", operate="bulk-start", change=lambda: book(runs[-1], state),
    )  # fmt: skip


def retry(code: WorkflowPlan) -> Cell:
    return on_run(trip(code), "retry")


def retry_from(code: WorkflowPlan) -> Cell:
    return at_checkpoint(trip(code), "retry_from")


def fork(code: WorkflowPlan) -> Cell:
    return at_checkpoint(trip(code), "fork")


def compensate(code: WorkflowPlan) -> Cell:
    return on_run(trip(code, effect="succeeded"), "compensate")


def migrate(code: WorkflowPlan) -> Cell:
    return on_run(trip(code, state="in_review", effect="succeeded"), "migrate")


def pin(code: WorkflowPlan) -> Cell:
    return on_run(trip(code, state="in_review"), "pin")


def bulk_retry(code: WorkflowPlan) -> Cell:
    return on_many([trip(code), trip(code)], "retry", "intended")


def bulk_migrate(code: WorkflowPlan) -> Cell:
    runs = [trip(code, state="in_review", effect="succeeded") for _ in range(2)]
    return on_many(runs, "migrate", "succeeded", workflow="trip", version=2)


def settle(code: WorkflowPlan) -> Cell:
    System.objects.create(name="ledger")
    run = make_run(plan=code, state="in_doubt")
    effect = make_effect(
        run, state="in_doubt", safety="legacy", tool="post", system="ledger", holds_system=True,
        quiet_after=now() - timedelta(hours=1),
    )  # fmt: skip
    doubt = make_doubt(effect)
    return Cell(
        subject=str(doubt.pk), runs=[run], page=reverse("console:doubt_verb", args=[doubt.pk, "did-not"]),
        plan=f"/doubts/{doubt.pk}", api=f"/doubts/{doubt.pk}/settle", operate="settle", body={"how": "did_not"},
        words=("--as", "did_not"),
        change=lambda: IdempotencyRecord.objects.filter(pk=effect.pk).update(holds_system=False),
    )  # fmt: skip


def move_call(code: WorkflowPlan) -> Cell:
    System.objects.create(name="ledger")
    queue = [
        make_effect(make_run(plan=code), state="queued", safety="legacy", tool="post", system="ledger")
        for _ in range(3)
    ]
    last = queue[-1]
    return Cell(
        subject=str(last.pk), runs=[last.run], page=reverse("console:move_call", args=[last.pk]),
        plan="/systems/ledger", api=f"/systems/calls/{last.pk}/move", operate="move-call", body={"to": "first"},
        form={"to": "first"}, words=("--to", "first"), harmless=True,
        change=lambda: IdempotencyRecord.objects.filter(pk=queue[0].pk).update(state="withdrawn", completed_at=now()),
    )  # fmt: skip


VERBS = (retry, retry_from, fork, compensate, migrate, pin, bulk_retry, bulk_migrate, settle, move_call)


class Surface:
    """How one of them shows a plan, and asks. An answer is the hash of the plan it was refused with, None if done."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell


class Console(Surface):
    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.browser = Client()
        self.browser.force_login(make_person("admin"))

    def shown(self) -> str:
        return self._hash_in(self.browser.get(self.cell.page))

    def ask(self, plan_hash: str | None) -> str | None:
        form = {"reason": "because", **self.cell.form} | ({"plan_hash": plan_hash} if plan_hash else {})
        answer = self.browser.post(self.cell.sends_to or self.cell.page, form)
        assert answer.status_code in (302, 409)
        return None if answer.status_code == 302 else self._hash_in(answer)

    @staticmethod
    def _hash_in(answer: Any) -> str:
        [found] = re.findall(r'name="plan_hash" value="([0-9a-f]{64})"', answer.content.decode())
        return str(found)


class Api(Surface):
    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.caller = Caller(make_tenant())

    def shown(self) -> str:
        found = read(self.caller.get(self.cell.plan))
        of_call = [one for one in found.get("calls", ()) if str(one.get("effect")) == self.cell.subject]
        return str((of_call or [found])[0]["plan_hash"])

    def ask(self, plan_hash: str | None) -> str | None:
        body = {"reason": "because", **self.cell.body} | ({"plan_hash": plan_hash} if plan_hash else {})
        answer = self.caller.post(self.cell.api, body)
        assert answer.status_code in (200, 201, 409), answer.content
        return None if answer.status_code < 300 else str(read(answer)["plan"]["plan_hash"])


class CommandLine(Surface):
    def shown(self) -> str:
        return str(json.loads(self._operate("--plan", "--json"))["plan_hash"])

    def ask(self, plan_hash: str | None) -> str | None:
        try:
            self._operate("--reason", "because", *(["--plan-hash", plan_hash] if plan_hash else []))
        except CommandError as refused:
            [found] = re.findall(r"plan hash ([0-9a-f]{64})", str(refused)) or [str(refused)]
            return found
        return None

    def _operate(self, *more: str) -> str:
        out = StringIO()
        cell = self.cell
        call_command("operate", cell.operate, cell.subject, "--tenant", "acme", *cell.words, *more, stdout=out)
        return out.getvalue()


def record(cell: Cell) -> list[Any]:
    """Everything that any of the verbs would have changed."""
    ids = [run.pk for run in cell.runs]
    return [
        list(Run.objects.order_by("pk").values_list("pk", "state", "fence", "lineage", "plan_id", "pinned")),
        list(IdempotencyRecord.objects.order_by("pk").values_list("pk", "state", "queue_order", "holds_system")),
        list(Bulk.objects.values_list("pk", "state")),
        Run.objects.filter(pk__in=ids, compensations__isnull=False).count(),
    ]


@pytest.mark.parametrize("surface", [Console, Api, CommandLine])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_plan_that_was_shown_is_the_plan_that_is_executed(clean_queue, code, verb, surface):
    cell = verb(code)
    door = surface(cell)
    shown = door.shown()
    before = record(cell)
    if not cell.harmless:
        assert door.ask(None) == shown, "nobody looked: it is shown instead of done"
        assert record(cell) == before
    cell.change()
    before = record(cell)
    fresh = door.ask(shown)
    assert fresh not in (None, shown), "the facts have changed: it is shown anew"
    assert record(cell) == before
    assert fresh == door.shown()
    assert door.ask(fresh) is None
    assert record(cell) != before

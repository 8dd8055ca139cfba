"""Effects over all runs: found by what is known of them, newest first, conflicts on top, at the price of a page."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableops.console import effects
from durableops.console.effect_filter import EffectFilter
from runs.models import RunEvent
from tests.factories import make_doubt, make_effect, make_run, make_tenant

EFFECTS = reverse("console:effects")


def shown(browser: Any, **asked: Any) -> list[int]:
    """The numbers of the effects on the first page."""
    answer = browser.get(EFFECTS, asked)
    assert answer.status_code == 200
    return [effect.pk for effect in answer.context["page"].rows]


def conflict(run: Any, about: Any, **over: Any) -> RunEvent:
    values = {"effect": about.pk, "tool": about.tool, "asked": "b" * 64, **over}
    reason = f"{about.tool} for {about.resource!r}: the slot holds another request; nothing was sent."
    return RunEvent.objects.create(run=run, event="effect_conflict", reason=reason, data=values)


def test_empty_page_says_what_would_be_here(signed_in):
    assert "No run has called a tool yet" in signed_in("viewer").get(EFFECTS).content.decode()


def test_newest_come_first_over_all_tools_and_runs_and_lead_to_run_and_effect(signed_in):
    made = [make_effect(make_run(), tool=tool, reused=n) for n, tool in enumerate(("a", "c", "b", "a"))]
    viewer = signed_in("viewer")
    assert shown(viewer) == [effect.pk for effect in reversed(made)]
    page = viewer.get(EFFECTS).content.decode()
    for effect in made:
        assert reverse("console:run", args=[effect.run_id]) in page
        assert reverse("console:effect", args=[effect.run_id, effect.pk]) in page


@pytest.mark.parametrize(
    "asked",
    [
        {"tool": "post"}, {"system": "ledger"}, {"state": "succeeded"}, {"key": "k" * 48}, {"request": "q" * 64},
        {"resource": "order 7"}, {"tool": "post", "state": "succeeded", "system": "ledger", "key": "k" * 48},
        {"tool": "post", "request": "q" * 64},
    ],
)  # fmt: skip
def test_each_filter_finds_what_is_asked_for_and_nothing_else(signed_in, asked):
    run = make_run()
    make_effect(run, tool="other")
    wanted = make_effect(
        run, state="succeeded", tool="post", safety="legacy", system="ledger", key="k" * 48, request_hash="q" * 64,
        resource="order 7",
    )  # fmt: skip
    make_effect(run, tool="other", state="refused")
    assert shown(signed_in("viewer"), **asked) == [wanted.pk]


@pytest.mark.parametrize("state", ["queued", "intended", "succeeded", "refused", "withdrawn", "in_doubt", "given_up"])
def test_each_outcome_is_found(signed_in, state):
    run = make_run()
    made = {one: make_effect(run, state=one, safety="outbox" if one == "queued" else "keyed")
            for one in ("queued", "intended", "succeeded", "refused", "withdrawn", "in_doubt", "given_up")}  # fmt: skip
    make_doubt(made["in_doubt"])
    viewer = signed_in("viewer")
    assert shown(viewer, state=state) == [made[state].pk]
    assert f'href="{EFFECTS}?state={state}"' in viewer.get(EFFECTS).content.decode()


def test_state_that_does_not_exist_is_left_out_and_odd_text_finds_nothing(signed_in):
    effect = make_effect(make_run())
    viewer = signed_in("viewer")
    assert shown(viewer, state="exploded", before="x") == [effect.pk]
    assert shown(viewer, tool="'; DROP TABLE runs_effect; --\0%s") == []
    assert shown(viewer, before="9" * 30) == [effect.pk]


def test_effects_of_other_tenants_are_never_found(signed_in):
    effect = make_effect(make_run(), key="k" * 48)
    conflict(effect.run, effect)
    stranger = signed_in("stranger")
    for asked in ({}, {"key": "k" * 48}, {"tool": effect.tool}, {"tenant": "acme"}, {"state": "intended"}):
        assert shown(stranger, **asked) == []
    assert "conflict-" not in stranger.get(EFFECTS).content.decode()


@pytest.mark.parametrize("asked", [{}, {"tool": "a"}, {"state": "succeeded"}, {"state": "refused"}, {"resource": "r"}])
def test_pages_follow_each_other_and_leave_nothing_out(signed_in, monkeypatch, asked):
    monkeypatch.setattr(effects, "PER_PAGE", 3)
    monkeypatch.setattr(effects, "WINDOW", 4)
    run = make_run()
    for n in range(12):
        for tool in ("a", "b"):
            state = "refused" if asked.get("state") == "refused" or n % 5 == 0 else "succeeded"
            make_effect(run, tool=tool, state=state, resource="r" if n % 5 == 0 else "other")
    viewer, seen = signed_in("viewer"), []
    where: dict[str, Any] | None = dict(asked)
    wanted = [
        pk for pk, *facts in run.effects.order_by("-id").values_list("pk", "tool", "state", "resource")
        if all(value in facts for value in asked.values())
    ]  # fmt: skip
    while where is not None:
        page = viewer.get(EFFECTS, where).context["page"]
        seen += [effect.pk for effect in page.rows]
        where = {**asked, "before": page.following} if page.following else None
    assert seen == wanted


def test_page_that_looked_in_vain_says_so_and_offers_to_look_further(signed_in, monkeypatch):
    monkeypatch.setattr(effects, "WINDOW", 2)
    run = make_run()
    old = make_effect(run, resource="rare")
    for _ in range(4):
        make_effect(run)
    answer = signed_in("viewer").get(EFFECTS, {"resource": "rare"})
    assert ("No effect matches so far" in answer.content.decode(), "Look further" in answer.content.decode()) == (
        True, True,
    )  # fmt: skip
    assert old.pk not in [effect.pk for effect in answer.context["page"].rows]


def test_form_becomes_an_address_of_what_says_something(signed_in):
    answer = signed_in("viewer").get(EFFECTS, {"filter": "1", "tool": "post", "system": "", "key": " "})
    assert (answer.status_code, answer["Location"]) == (302, f"{EFFECTS}?tool=post")


def test_conflicts_stand_on_top_with_what_was_asked_and_what_is_on_record(signed_in):
    effect = make_effect(make_run(), state="succeeded", tool="charge", resource="order 7", request_hash="a" * 64)
    found = conflict(make_run(), effect)
    gone = conflict(make_run(), effect, effect=10**9, tool="mail")
    page = signed_in("viewer").get(EFFECTS).content.decode()
    assert page.index(f'id="conflict-{gone.pk}"') < page.index(f'id="conflict-{found.pk}"')
    assert page.index(f'id="conflict-{found.pk}"') < page.index(f'id="effect-{effect.pk}"')
    for told in ("the slot holds another request", "a" * 64, "b" * 64, "removed by retention"):
        assert told in page, told
    only = signed_in("viewer").get(EFFECTS, {"tool": "charge"}).content.decode()
    assert (f'id="conflict-{found.pk}"' in only, f'id="conflict-{gone.pk}"' in only) == (True, False)


def test_page_asks_little_and_the_same_for_many_effects(signed_in):
    viewer, counts = signed_in("viewer"), []
    for times in (1, 12):
        for n in range(times):
            effect = make_effect(make_run(), tool=f"tool-{n}")
            conflict(effect.run, effect)
            make_doubt(make_effect(effect.run, state="in_doubt"))
        with CaptureQueriesContext(connection) as captured:
            shown(viewer)
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 12


@pytest.mark.parametrize(
    "asked",
    [{}, {"tool": "a"}, {"system": "s"}, {"state": "succeeded"}, {"state": "refused"}, {"state": "in_doubt"},
     {"key": "k"}, {"request": "q"}, {"resource": "r"}],
)  # fmt: skip
def test_no_filter_reads_the_whole_table(db, asked):
    tenant = make_tenant()
    sql, params = effects.statement(EffectFilter(**asked), [tenant.pk])
    with connection.cursor() as cursor:
        # On a small table it would be right to: told not to, the planner does so only where there is no other way.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {sql}", params)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan on runs_effect" not in plan
    assert "Index" in plan

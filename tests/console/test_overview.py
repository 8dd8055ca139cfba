"""The figures of the Overview that say something went wrong, each with its list."""

from __future__ import annotations

import re
from datetime import timedelta

from durableops.console.inbox import frame
from durableops.limits.clocks import Clock, Firing, Phase
from runs.models import RunEvent, Worker
from tests.factories import make_doubt, make_effect, make_plan, make_run, make_tenant, make_wait, make_worker, now
from tests.runs.compensation_violations import make_compensation


def tile(page, name):
    found = re.search(rf'<span class="name">{name}</span><span class="figure">([^<]*)</span>', page)
    assert found is not None, name
    return found[1]


def long_ago():
    return now() - timedelta(minutes=5)


def test_open_runs_that_nothing_will_wake_are_in_limbo(signed_in):
    able = make_worker(versions={"made": [1]}, plans=[make_plan().pk])
    make_run(due_at=long_ago())  # a worker knows it
    make_wait(make_run(state="waiting", state_since=long_ago()))
    make_run(state="running", worker=able, state_since=long_ago())
    nobody_knows_it = make_run(workflow="forgotten", due_at=long_ago())
    forgotten_wait = make_run(state="waiting", state_since=long_ago())
    dead = make_worker(ended="gone")
    Worker.objects.filter(pk=dead.pk).update(ended_at=long_ago())
    orphan = make_run(state="running", worker=dead, state_since=long_ago())
    viewer = signed_in("viewer")
    assert tile(viewer.get("/overview/").content.decode(), "In limbo") == "3"
    listed = set(re.findall(r'id="run-([0-9a-f-]{36})"', viewer.get("/runs/?view=limbo").content.decode()))
    assert listed == {str(run.pk) for run in (nobody_knows_it, forgotten_wait, orphan)}


def fired(run, clock, phase, **more):
    firing = Firing(clock=Clock(clock), limit_seconds=1, trigger="late", elapsed_seconds=2, phase=Phase(phase),
                    next_state="queued", whom=more.pop("whom", ""))  # fmt: skip
    RunEvent.objects.create(run=run, event=clock, data=firing.as_data(), **more)


def test_clocks_that_fired_are_counted_by_cause_with_the_runs_behind_them(signed_in):
    run, theirs, old = make_run(), make_run(tenant=make_tenant("other")), make_run()
    for one in (run, run, theirs):
        fired(one, "call_timeout", "calling", whom="tool crm")
    fired(old, "call_timeout", "calling", whom="tool crm", at=now() - timedelta(days=2))
    fired(run, "step_timeout", "computing")
    RunEvent.objects.create(run=run, event="retry_later", data={"clock": "step_timeout"})
    viewer = signed_in("viewer")
    page = viewer.get("/overview/").content.decode()
    rows = re.findall(
        r'</svg>([^<]+)</span></td><td class="nowrap">([^<]+)</td><td class="break">([^<]+)</td>'
        r'<td class="num">(\d+)</td><td class="num"><a href="([^"]+)">(\d+)',
        page,
    )
    assert rows == [
        ("slow dependency", "a call’s timeout", "tool crm", "2", "/runs/?q=clock:call_timeout", "1"),
        ("design error", "a step’s timeout", "–", "1", "/runs/?q=clock:step_timeout", "1"),
    ]
    listed = re.findall(r'id="run-([0-9a-f-]{36})"', viewer.get("/runs/?q=clock:call_timeout").content.decode())
    assert listed == [str(run.pk)]
    others = viewer.get("/runs/?q=-clock:call_timeout").content.decode()
    assert (str(old.pk) in others, f"run-{run.pk}" in others) == (True, False)
    assert "is no clock" in viewer.get("/runs/?q=clock:cuckoo").content.decode()


def test_doubts_are_counted_by_effect_also_of_runs_that_ended_and_lead_to_their_queue(signed_in):
    for state in ("in_doubt", "cancelled", "running"):
        run = make_run(state=state)
        for _ in range(2):
            make_doubt(make_effect(run, state="in_doubt"))
    settled = make_doubt(
        make_effect(make_run(), state="given_up"), settled_at=now(), settled_as="give_up", settled_by="a"
    )
    make_doubt(make_effect(make_run(tenant=make_tenant("other")), state="in_doubt"))
    page = signed_in("operator").get("/overview/").content.decode()
    assert tile(page, "In doubt") == "6"
    assert re.search(r'href="/inbox/\?queue=doubt" data-hot data-state="in_doubt"><span class="name">In doubt', page)
    shown = signed_in("operator").get("/inbox/?queue=doubt").content.decode()
    assert ("<b>6</b> open" in shown, f"doubt-{settled.pk}" in shown) == (True, False)
    assert 'href="/effects/?state=in_doubt"' in signed_in("viewer").get("/overview/").content.decode()


def test_compensation_that_waits_for_people_is_counted_and_leads_to_its_queue(signed_in):
    make_compensation()
    make_compensation(state="approved", linked_run=make_run())  # its tool has its turn
    page = signed_in("operator").get("/overview/").content.decode()
    assert tile(page, "Compensation") == "1"
    assert 'href="/inbox/?queue=compensation" data-hot' in page
    assert "Nothing waits for a person" not in page


def test_counts_of_the_desk_stop_at_their_cap_and_say_so(signed_in, monkeypatch):
    monkeypatch.setattr(frame, "COUNT_CAP", 1)
    run = make_run(state="in_doubt")
    for _ in range(3):
        make_doubt(make_effect(run, state="in_doubt"))
    assert tile(signed_in("viewer").get("/overview/").content.decode(), "In doubt") == "1+"


def test_workers_lost_are_those_that_ended_without_being_asked(signed_in):
    make_worker()
    make_worker(ended="stopped by its operator")
    make_worker(ended="its processes have gone from this machine")
    assert tile(signed_in("viewer").get("/overview/").content.decode(), "Workers lost") == "1"

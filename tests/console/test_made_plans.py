"""A plan that a run made for itself, on its page and in the list of runs."""

from __future__ import annotations

import re

from django.urls import reverse

from durableops.console.listing import row_of
from durableops.console.plans import own_steps
from runs.models import MadePlan, Run
from tests.factories import make_checkpoint, make_run


def planned() -> Run:
    """A run whose first step planned twice; it stands in the second step of the second plan."""
    run = make_run(state="waiting", step_id="write", head_seq=4, own_plan=True)
    for seq, step_id in ((1, "think"), (2, "search"), (3, "again")):
        make_checkpoint(run, seq=seq, kind="step", step_id=step_id, next_step="write")
    for number, seq, by, steps in ((1, 1, "think", ["search", "again"]), (2, 3, "again", ["write", "send"])):
        MadePlan.objects.create(
            run=run, number=number, lineage=1, seq=seq, step_id=by, steps=steps, plan={}, plan_hash=f"{number}" * 64,
            why=f"<i>reason {number}</i>", fence=1,
        )  # fmt: skip
    return run


def test_page_shows_each_plan_with_who_made_it_why_and_which_is_in_force(signed_in):
    run = planned()
    page = signed_in("viewer").get(reverse("console:run", args=[run.pk]) + "?tab=decisions").content.decode()
    rows = {n: " ".join(re.sub(r"<[^>]+>", " ", text).split()) for n, text in
            re.findall(r'<tr id="plan-(\d)">(.*?)</tr>', page, flags=re.DOTALL)}  # fmt: skip
    assert list(rows) == ["2", "1"]
    assert "in force write → send step again" in rows["2"]
    assert "in force" not in rows["1"]
    assert "search → again step think &lt;i&gt;reason 1" in rows["1"]
    assert "4 <small>of 5" in page, "three steps are committed, and it stands in the first of the two it planned"


def test_row_in_the_list_shows_the_steps_of_the_runs_own_plan():
    run, other = planned(), make_run()
    own = own_steps([run, other])
    assert own == {run.pk: ["think", "search", "again", "write", "send"]}
    row = row_of(run, None, own[run.pk])
    assert (row.number, row.steps[3], row.steps[4]) == (4, ("write", "waiting"), ("send", ""))
    assert own_steps([other]) == {}

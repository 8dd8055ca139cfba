"""The filter between query string, SQL and template."""

from __future__ import annotations

import json

import pytest
from django.http import QueryDict

from durableops.console.filters import VIEWS, RunFilter, parse
from runs.states import State

AWKWARD = ["a=b", "x & y", "#1", "a+b", "50%", '"quoted"', "it's", "é 🐢", "a:b", "\\", "-", "label.x:y"]


def read(**given):
    query = QueryDict(mutable=True)
    query.update(given)
    return RunFilter.read(query)


@pytest.mark.parametrize("value", AWKWARD)
def test_awkward_values_come_back_unchanged_however_often_the_address_is_made(value):
    asked = read(q=f"workflow:{json.dumps(value)} -label.team:{json.dumps(value)}", view="failed", sort="oldest")
    again = asked
    for _ in range(3):
        again = RunFilter.read(QueryDict(again.query))
        assert again == asked
    assert [(c.name, c.value, c.negated) for c in again.conditions] == [
        ("workflow", value, False), ("label.team", value, True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("foo:bar", "is not a qualifier"), ("state:sleeping", "is not a state"), ("since:soon", "wants a span"),
     ("workflow:", "needs a value"), ("label:x", "is not a qualifier"), ("-since:7d", "wants a span")],
)  # fmt: skip
def test_condition_that_means_nothing_says_why_and_matches_nothing(text, complaint):
    asked = read(q=text)
    assert complaint in asked.conditions[0].wrong
    assert asked.scan().nothing


def test_state_conditions_narrow_the_view_and_cannot_widen_it():
    assert read(q="-state:failed").scan().states == tuple(sorted(set(RunFilter().scan().states or ALL) - {"failed"}))
    assert read(view="failed", q="state:failed").scan().states == ("failed",)
    assert read(view="failed", q="state:running").scan().nothing


ALL = sorted(State)


def test_chip_removes_its_condition_and_nothing_else():
    asked = read(q="workflow:a state:failed since:7d", view="open")
    without = {str(chip): query for chip, query in asked.chips()}
    assert RunFilter.read(QueryDict(without["state:failed"])).text == "workflow:a since:7d"
    assert RunFilter.read(QueryDict(without["state:failed"])).view is VIEWS["open"]


def test_the_same_condition_added_twice_stands_once():
    assert read(q="workflow:a").with_text("workflow:a state:failed").text == "workflow:a state:failed"


def test_bare_word_is_a_workflow_and_something_like_an_id_is_one():
    assert [c.name for c in parse("invoice-sync 019a7c4e")] == ["workflow", "id"]


@pytest.mark.parametrize(
    "given", [{"after": "nonsense"}, {"after": "2026-01-01~x"}, {"before": ""}, {"view": "no"}, {"sort": "x"}]
)
def test_nonsense_in_the_address_is_the_first_page_of_everything(given):
    assert read(**given) == RunFilter()


def test_values_travel_as_parameters_only():
    scan = read(q='workflow:"\'; DROP TABLE runs_run; --"').scan()
    assert "DROP" not in "".join(scan.where)
    assert "DROP" in "".join(str(value) for value in scan.params.values())

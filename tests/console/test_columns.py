"""The columns of the list: in the address, remembered for one person, and kept by every link."""

from __future__ import annotations

import re

import pytest

from tests.factories import make_run


def heads(answer):
    return re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', answer.content.decode())


USUAL = ["State", "Run", "Workflow", "Step", "Waits for", "Clock", "Resumes", "Avoided", "Age"]


def test_chosen_columns_are_in_the_address_which_can_be_shared(signed_in):
    make_run(start_key="INV-7", labels={"team": "a"})
    chosen = signed_in("viewer").get("/runs/", {"col": ["key", "workflow", "labels"], "view": "queued"})
    assert chosen["Location"] == "/runs/?view=queued&cols=workflow,key,labels"
    page = signed_in("operator").get(chosen["Location"])
    assert heads(page) == ["State", "Run", "Workflow", "Start key", "Labels"]
    assert "INV-7" in page.content.decode()


def test_chosen_columns_are_remembered_and_shown_by_the_address_again(signed_in):
    make_run()
    viewer = signed_in("viewer")
    viewer.get("/runs/", {"col": ["started"]})
    again = viewer.get("/runs/?view=queued")
    assert again["Location"] == "/runs/?view=queued&cols=started"
    assert heads(viewer.get(again["Location"])) == ["State", "Run", "Started"]


def test_usual_columns_come_back_with_one_button(signed_in):
    make_run()
    viewer = signed_in("viewer")
    viewer.get("/runs/", {"col": ["started"]})
    assert viewer.get("/runs/", {"usual": "1", "col": ["started"]})["Location"] == "/runs/?"
    assert heads(viewer.get("/runs/")) == USUAL


def test_every_link_and_the_live_update_keep_the_columns(signed_in):
    make_run()
    page = signed_in("viewer").get("/runs/?cols=workflow,key").content.decode()
    links = re.findall(r'(?:href|hx-get)="(/runs/(?:table/)?\?[^"]*)"', page)
    assert links
    assert [link for link in links if "cols=workflow,key" not in link] == []


@pytest.mark.parametrize("given", ["", "nonsense", "<b>", "workflow,,nonsense", "\x00"])
def test_unknown_columns_are_left_out(signed_in, given):
    make_run()
    found = heads(signed_in("viewer").get("/runs/", {"cols": given}))
    assert found == (["State", "Run", "Workflow"] if "workflow" in given else USUAL)

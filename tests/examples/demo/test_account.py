"""The comparison of the two logs, case by case."""

from __future__ import annotations

import pytest

from examples.demo.account import CALL_TIMEOUT, Account, Effect, Records, Repeat, compare
from examples.demo.desk_client import DeskRequest, DeskTicket


def account(
    *,
    seen: str,
    opened: str,
    recorded: str = "abc",
    repeats: tuple[tuple[str, str], ...] = (),
    timed_out: str = "",
    crashes: tuple[str, ...] = ("worker_lost",),
    others: str = "",
) -> Account:
    """Keys are letters; a ticket's reference is its letter in capitals."""
    return compare(
        requests=[DeskRequest(key=key, outcome="created") for key in seen],
        tickets=[DeskTicket(key=key, reference=key.upper()) for key in opened],
        records=Records(
            effects=[Effect(key=key, state="succeeded", resource=key.upper()) for key in recorded],
            repeats=[Repeat(key=key, cause=cause) for key, cause in repeats],
            timed_out_keys=set(timed_out),
            crashes=crashes,
        ),
        others=set(others),
    )


def test_every_key_seen_once_is_a_clean_account():
    found = account(seen="abc", opened="abc")

    assert found.is_clean
    assert (found.requests, found.tickets, found.repeated_keys) == (3, 3, 0)


def test_a_repeat_after_a_crash_with_a_receipt_is_explained():
    found = account(seen="abcb", opened="abc", repeats=(("b", "worker_lost"),))

    assert found.is_clean
    assert found.repeated_keys == 1
    assert found.explained == {"worker_lost": 1}


def test_a_repeat_after_a_timeout_on_the_timeline_is_explained():
    found = account(seen="abcb", opened="abc", repeats=(("b", CALL_TIMEOUT),), timed_out="b")

    assert found.is_clean
    assert found.explained == {CALL_TIMEOUT: 1}


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ("nothing was noted", {}),
        ("the note is about another key", {"repeats": (("a", "worker_lost"),)}),
        ("the crash has no receipt", {"repeats": (("b", "worker_lost"),), "crashes": ()}),
        ("the timeout is not on the timeline", {"repeats": (("b", CALL_TIMEOUT),)}),
        ("the cause is neither a crash nor a timeout", {"repeats": (("b", "HTTPStatusError: 500"),)}),
    ],
)
def test_a_repeat_that_nothing_bears_out_is_unexplained(why, options):
    found = account(seen="abcb", opened="abc", **options)

    assert found.unexplained_repeats == ["b"], why
    assert not found.is_clean


def test_each_repeat_needs_a_cause_of_its_own():
    once = (("b", "worker_lost"),)

    assert account(seen="abcbb", opened="abc", repeats=once).unexplained_repeats == ["b"]
    assert account(seen="abcbb", opened="abc", repeats=once * 2).is_clean


def test_a_repeat_that_was_noted_and_never_sent_is_no_fault():
    assert account(seen="abc", opened="abc", repeats=(("b", "worker_lost"),)).is_clean


def test_a_second_ticket_under_one_key_is_a_duplicate():
    found = account(seen="abcb", opened="abcb", repeats=(("b", "worker_lost"),))

    assert found.duplicate_tickets == 1
    assert not found.is_clean


def test_a_second_ticket_about_one_resource_under_another_key_is_a_duplicate():
    found = compare(
        requests=[DeskRequest(key="a", outcome="created"), DeskRequest(key="b", outcome="created")],
        tickets=[DeskTicket(key="a", reference="X"), DeskTicket(key="b", reference="X")],
        records=Records(
            effects=[Effect(key=key, state="succeeded", resource="X") for key in "ab"],
            repeats=[],
            timed_out_keys=(),
            crashes=(),
        ),
    )

    assert found.duplicate_tickets == 1


def test_a_key_without_an_intent_is_reported():
    assert account(seen="abcz", opened="abc").unknown_keys == ["z"]


def test_a_result_without_a_ticket_is_reported():
    assert account(seen="ab", opened="ab").missing_tickets == ["c"]


def test_other_runs_in_the_same_log_are_left_out():
    found = account(seen="abcyyy", opened="abcy", others="y")

    assert found.is_clean
    assert found.requests == 3

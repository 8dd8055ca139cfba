"""The cast signed in, and something to look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.cache import cache
from django.test import Client

from durableops import State, step, workflow
from durableops.authoring import registry
from runs.models import Membership, Run, Wait
from tests.factories import make_person, make_run, make_wait


@pytest.fixture(autouse=True)
def _plain_http(db, settings):
    """Pages ask for files by their plain names, and nothing is remembered of earlier sign-ins."""
    cache.clear()


@pytest.fixture
def signed_in(client) -> Callable[..., Client]:
    """A client of somebody of the cast."""

    def sign_in(name: str, *, sees_payloads: bool = False) -> Client:
        person = make_person(name)
        Membership.objects.filter(user=person).update(sees_payloads=sees_payloads)
        browser = Client()
        browser.force_login(person)
        return browser

    return sign_in


@pytest.fixture
def asking() -> tuple[Run, Wait]:
    """A run that waits for an approval."""
    run = make_run(state="waiting")
    wait = make_wait(
        run, kind="approval", name="delivery", question="Deliver?", facts='{"rows":3}', facts_hash="f" * 64
    )
    return run, wait


@pytest.fixture
def simple():
    """The only workflow this process knows."""
    with registry.isolated():

        class Simple(State):
            customer: str
            amount: int = 3
            urgent: bool = False
            lines: list[str] = []

        @workflow(name="simple", version=1, state=Simple)
        class SimpleWorkflow:
            @step
            def only(run):
                pass

        yield SimpleWorkflow

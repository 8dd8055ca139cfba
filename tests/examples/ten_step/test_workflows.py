"""Ten steps through a real worker and a real desk: what the drill's predictions rest on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.processes import Troupe
from examples.desk import ADDRESS_VARIABLE
from examples.ten_step import workflows as ten_step
from tests.examples.desks import DeskClient
from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool(process_environment: dict[str, str], clean_queue: Any, desk: DeskClient, tmp_path: Path) -> Iterator[Troupe]:
    """A worker and upkeep that know the workflow and the desk."""
    environment = process_environment | {"DURABLEOPS_APPS": "examples.ten_step", ADDRESS_VARIABLE: desk.url}
    troupe = Troupe(folder=CHECKOUT, logs=tmp_path, environment=environment)
    for command in ("upkeep", "worker"):
        troupe.start(command, [sys.executable, "manage.py", command])
    yield troupe
    troupe.dismiss()


def test_ten_steps_open_four_tickets_and_reuse_what_the_plan_predicts(pool: Troupe, desk: DeskClient):
    from durableops.engine import commands
    from durableops.engine.inbound import send_event
    from durableops.engine.start import start
    from durableops.engine.tenants import get_or_make_tenant
    from runs.models import Run, Wait

    desk.fault("timeout", title=ten_step.TITLE_THAT_TIMES_OUT, seconds=30)
    tenant = get_or_make_tenant("ten")
    run_id = start("ten-step", {"order": "o-1", "quantity": 3}, tenant=tenant, actor="test").run_id
    # The event comes before anybody waits for it.
    send_event(ten_step.EVENT, tenant=tenant, actor="test", correlation="o-1", payload={"parts": 7})
    wait = eventually(
        lambda: Wait.objects.filter(run_id=run_id, name=ten_step.APPROVAL, state="open", run__state="waiting").first(),
        timeout=20,
        hoping_for="the approval to be asked for",
    )
    assert wait
    commands.approve(wait.pk, tenant=tenant, actor="test")
    run = eventually(
        lambda: Run.objects.filter(pk=run_id, finished_at__isnull=False).first(), timeout=20, hoping_for="the end"
    )

    assert run
    assert (run.state, run.error_message) == ("succeeded", "")
    assert run.effects_avoided == ten_step.EFFECTS_AVOIDED_BY_WAITS
    assert len(desk.tickets()) == ten_step.TICKETS
    assert desk.stats()["repeated_keys"] == 1
    assert desk.stats()["tickets_beyond_the_first_of_a_key"] == 0

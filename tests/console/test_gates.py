"""What keeps a run from running, on its page and on the Overview."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.urls import reverse

from durableops.engine import quotas
from durableops.engine.database import Database
from durableops.engine.gates import before
from durableops.engine.quotas import Owner
from durableops.upkeep import gates
from runs.models import Gate
from tests.factories import make_run, make_tenant, now

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def looking() -> Iterator[Database]:
    """Upkeep's own connection."""
    found = Database(name="tests")
    yield found
    found.close()


def capped(owner: Owner, cap: int) -> None:
    quotas.set_quota(owner, {"running_cap": cap}, actor="ada", reason="at first")


def test_pages_say_which_gate_is_closed_and_since_when(signed_in, looking):
    acme = make_tenant()
    capped(Owner(tenant=acme), 1)
    capped(Owner(resource="db-scan"), 0)
    make_run(state="running")
    run = make_run(resource="db-scan")
    gates.look(looking)
    Gate.objects.update(seen_at=now() + timedelta(hours=1))  # so that it lasts, however slow this is
    assert [one.gate for one in before(run).closed] == ["quota.resource", "quota.tenant"]
    viewer = signed_in("viewer")
    page = viewer.get(reverse("console:run", args=[run.pk])).content.decode()
    assert "<b>Its tenant is at its cap</b>: 1 of at most 1 run, and 1 wait, since " in page
    assert "<b>db-scan is at its cap</b>" in page
    overview = viewer.get(reverse("console:overview")).content.decode()
    assert "its tenant’s cap" in overview
    assert "db-scan" in overview
    # What concerns another tenant is not for these eyes.
    assert "its tenant’s cap" not in signed_in("stranger").get(reverse("console:overview")).content.decode()

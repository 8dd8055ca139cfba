"""What the API's tests share: two tenants, a workflow, and callers with tokens."""

from __future__ import annotations

import pytest

from durableops.authoring import registry
from durableops.authoring.decorators import step, workflow
from durableops.authoring.state import State
from runs.models import Tenant
from tests import factories
from tests.api.clients import Caller


class Order(State):
    customer: str
    amount: int = 1
    notes: list[str] = []


@pytest.fixture
def order(own_registry: registry.Registry) -> None:
    """The one workflow that is known in these tests."""

    @workflow(name="order", version=2, state=Order)
    class OrderWorkflow:
        @step
        def take(run):
            return None


@pytest.fixture
def acme(db: None) -> Tenant:
    return factories.make_tenant("acme")


@pytest.fixture
def other(db: None) -> Tenant:
    return factories.make_tenant("other")


@pytest.fixture
def caller(acme: Tenant, order: None) -> Caller:
    """A caller of acme with every scope."""
    return Caller(acme)


@pytest.fixture
def stranger(other: Tenant, order: None) -> Caller:
    """A caller of another tenant with every scope."""
    return Caller(other, name="stranger")

"""Requests made from the API's own description, fitting and unfitting: every answer is one that it allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as openapi

from durableops.api.app import openapi_document
from durableops.engine.bulk import capture
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from durableops.engine.retention import erasures, holds
from durableops.upkeep.retention import preview
from durableops.upkeep.retention.rehearsal import OfRequest
from durableops.wsgi import application
from runs.states import State
from tests import factories
from tests.api.clients import Caller

EXAMPLES = 15

# Left out: acceptance of everything that fits (which workflows there are is not in the description) and probes of its
# own without a token (tests/api/test_problems.py walks every address so).
CHECKS = [
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_headers_conformance,
    openapi.response_schema_conformance,
    openapi.negative_data_rejection,
]


def without_rights() -> dict[str, Any]:
    """The description without its rules of access: every request of these tests carries a good token."""
    document = openapi_document()
    del document["components"]["securitySchemes"]
    for methods in document["paths"].values():
        for operation in methods.values():
            del operation["security"]
    return document


schemas = schemathesis.openapi.from_dict(without_rights())
OPERATIONS: dict[str, Any] = {
    found.ok().definition.raw["operationId"]: found.ok()  # type: ignore[union-attr]
    for found in schemas.get_all_operations()
}


FIT_WHATEVER_COMES = {"list_systems", "get_system", "get_quota", "get_quota_history"}
"""Without parameters but a free name: no request to them is unfitting."""


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Let the application's handler keep the test's connection, as Django's own test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.usefixtures("one_connection")
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_are_those_the_description_allows(
    caller: Caller, acme: Any, media: str, operation: str, mode: GenerationMode
):
    if mode is GenerationMode.NEGATIVE and operation in FIT_WHATEVER_COMES:
        return
    run = factories.make_run(state=State.WAITING, tenant=acme)
    wait = factories.make_wait(run, kind="approval", name="delivery", facts="{}", facts_hash="f" * 64)
    artifact = factories.make_artifact(run, readable_by="members")
    doubt = factories.make_doubt(factories.make_effect(run, state="in_doubt"))
    known = {
        "run_id": str(run.pk),
        "wait_id": wait.pk,
        "file_id": artifact.pk,
        "prompt_id": factories.make_prompt(run).pk,
        "doubt_id": doubt.pk,
        "effect_id": doubt.effect_id,
        "name": "ledger",
        "seq": 0,
        "compensation_id": factories.make_compensation(factories.make_effect(run, state="succeeded")).pk,
        "message_id": factories.make_message(run, state="poisoned").pk,
        "bulk_id": capture.preview(verb("pause"), Selection(words="one", ids=[run.pk]), tenant=acme, actor="oli").pk,
        "verb": "cancel",
        "fingerprint": factories.make_review(factories.make_run(state="in_review", tenant=acme)).fingerprint,
        "hold_id": holds.place(tenant=acme, actor="oli", reason="court").pk,
        "erasure_id": erasures.request(tenant=acme, label="customer", value="ann", actor="oli", reason="asked").pk,
        "preview_id": preview.store(
            preview.look(OfRequest(), factories.now(), tenant=acme, most=5), tenant=acme, by="oli"
        ).pk,
    }
    headers = {"Authorization": f"Bearer {caller.issued.secret}", "Host": "localhost"}

    @given(case=OPERATIONS[operation].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.path_parameters.update({name: known[name] for name in case.path_parameters})
        response = case.call(app=application, headers=headers, base_url="http://localhost")
        assert response.status_code < 500
        case.validate_response(response, checks=CHECKS, headers=headers)

    ask()

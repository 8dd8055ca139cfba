"""Raw prompts over the API: that they are there for many, what they say for few, each time with a reason."""

from __future__ import annotations

import pytest

from runs.models import AuditEntry
from tests import factories
from tests.api.clients import Caller, read

pytestmark = pytest.mark.usefixtures("order")


def test_list_says_that_there_are_prompts_and_not_what_they_say(acme):
    prompt = factories.make_prompt(factories.make_run(tenant=acme), text="geheim")
    answer = Caller(acme, ["runs:read"]).get(f"/runs/{prompt.run_id}/prompts")
    assert b"geheim" not in answer.content
    assert prompt.sealed not in answer.content.decode()
    [found] = read(answer)["prompts"]
    assert (found["id"], found["name"], found["bytes"]) == (prompt.pk, "kind", 6)


def test_reading_wants_the_scope_and_a_reason_and_is_in_the_audit(acme):
    prompt = factories.make_prompt(factories.make_run(tenant=acme), text="words")
    address = f"/runs/{prompt.run_id}/prompts/{prompt.pk}/read"
    caller = Caller(acme, ["prompts:read"])
    assert caller.post(address, {}).status_code == 400
    assert not AuditEntry.objects.filter(verb="read_prompt").exists()
    assert read(caller.post(address, {"reason": "complaint 7"})) == {"id": prompt.pk, "text": "words"}
    assert AuditEntry.objects.get(verb="read_prompt").reason == "complaint 7"
    assert Caller(acme, ["runs:read", "payloads:read"]).post(address, {"reason": "x"}).status_code == 403


def test_prompt_that_retention_took_is_not_there(acme):
    prompt = factories.make_prompt(factories.make_run(tenant=acme))
    prompt.delete()
    answer = Caller(acme).post(f"/runs/{prompt.run_id}/prompts/{prompt.pk or 1}/read", {"reason": "x"})
    assert (answer.status_code, read(answer)["code"]) == (404, "prompt.not_found")

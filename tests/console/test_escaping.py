"""Text of workflows, tools, people and other systems is inert on every page, whatever it holds."""

from __future__ import annotations

import json
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from durableops import tokens
from runs.models import (
    ApiToken,
    Artifact,
    AuditEntry,
    Decision,
    LogLine,
    PauseSwitch,
    Receipt,
    Run,
    RunEvent,
)
from tests.factories import (
    make_checkpoint,
    make_effect,
    make_plan,
    make_prompt,
    make_run,
    make_tenant,
    make_wait,
    make_worker,
    now,
)

NASTY = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "{{7*7}}{% now 'Y' %}",
    "<div hx-get=/sign-out/ hx-trigger=load></div>",
    "</title><svg/onload=alert(1)>",
    "\u202e gnitsop \u0000".replace("\u0000", "�"),
    "--><!--",
    "&lt;b&gt;",
]


class Reader(HTMLParser):
    """Notices what a browser would run or what htmx would obey."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            runs = name in ("href", "src", "action", "formaction") and (value or "").strip().lower().startswith(
                "javascript"
            )
            if runs or name.startswith("on") or name == "style":
                self.found.append(f"<{tag} {name}={value}>")
        given = dict(attrs)
        if tag == "img" or (tag == "script" and not given.get("src")) or given.get("hx-trigger") == "load":
            self.found.append(f"<{tag} {given}>")

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def dreadful(request) -> Run:
    """A run with the text in every column that holds text."""
    text = request.param
    short = text[:90]
    plan = make_plan(short, plan={"steps": [{"id": short}, {"id": "second"}]})
    run = make_run(
        state="failed", plan=plan, step_id=short, created_by=text, labels={short: text}, error_class=text,
        error_message=text, progress_note=text, wake_detail=text, cancel_reason=text, start_key=text, head_seq=1,
        state_json=json.dumps({text: [text, {"x": text}]}), resumes=1,
    )  # fmt: skip
    make_checkpoint(run, seq=2, step_id=short, next_step=short, state_seq=2, state=json.dumps({text: 1}), cursor=text)
    make_effect(run, tool=short, resource=text, request_summary={text: text}, result=json.dumps(text),
                state="refused", downstream_id=text, error_class=text, error_message=text, step_id=short)  # fmt: skip
    make_wait(run, kind="approval", name=text, question=text, facts=json.dumps({text: text}), answered_by=text)
    for event in ("call_timeout", "fail", "late_result_rejected", "claim"):
        RunEvent.objects.create(run=run, event=event, step_id=short, actor=text, reason=text, to_state="queued",
                                data={"traceback": text, "tool": text, "cause": text})  # fmt: skip
    Receipt.objects.create(run=run, number=1, cause=short[:40], detail=text, step_id=short, fence=1, lost_at=now())
    LogLine.objects.create(run=run, at=now(), step_id=short, level=short[:10], message=text, fields={text: text})
    Decision.objects.create(run=run, step_id=short, name=text, input_hash="i", result=json.dumps(text), fence=1)
    Artifact.objects.create(run=run, step_id=short, name=text, data_class="deliverable", content_type=short,
                            content_hash="c", size_bytes=1, path="p", fence=1)  # fmt: skip
    make_prompt(run, text=text, name="n" + short.strip(), step_id=short)
    AuditEntry.objects.create(tenant=run.tenant, actor=text, verb="pause", target_kind="run", target_id=str(run.pk),
                              reason=text, before={text: text}, after={text: text})  # fmt: skip
    make_worker(host=text, versions={text: [1]})
    make_worker(host=text, ended=text)
    open_one = make_run(state="waiting", plan=plan, step_id=short)
    make_wait(open_one, kind="approval", name=text, question=text, facts=json.dumps({text: text}))
    return run


@pytest.mark.parametrize("dreadful", NASTY, indirect=True)
def test_hostile_text_is_inert_on_every_page(dreadful, signed_in):
    admin = signed_in("admin", sees_payloads=True)
    run = Run.objects.exclude(pk=dreadful.pk).get()
    wait, effect = run.waits.get(), dreadful.effects.get()
    PauseSwitch.objects.create(scope="workflow", workflow=run.workflow, actor=run.created_by, reason=run.workflow)
    pages = ["overview", "runs", "workers", "pauses"]
    addresses = [reverse(f"console:{page}") for page in pages]
    for tab in ("timeline", "events", "checkpoints", "effects", "decisions", "artifacts", "logs", "audit"):
        addresses += [reverse("console:run", args=[one.pk]) + f"?tab={tab}" for one in (dreadful, run)]
    event = make_wait(run, name=run.created_by, correlation=run.created_by, expires_at=now() + timedelta(days=1))
    addresses += [
        reverse("console:send", args=[run.pk, event.pk]),
        reverse("console:extend_wait", args=[run.pk, event.pk]),
        reverse("console:runs") + "?cols=workflow,step,waits,clock,key,labels,by",
        reverse("console:checkpoint", args=[dreadful.pk, 2]),
        reverse("console:effect", args=[dreadful.pk, effect.pk]),
        reverse("console:decide", args=[run.pk, wait.pk, "approve"]),
        reverse("console:run_verb", args=[run.pk, "cancel"]),
    ]
    for address in addresses:
        answer = admin.get(address)
        reader = Reader()
        reader.feed(answer.content.decode())
        assert (answer.status_code, reader.found) == (200, []), address


@pytest.mark.parametrize("text", NASTY)
def test_hostile_filter_text_is_inert_and_survives(signed_in, text):
    answer = signed_in("viewer").get(reverse("console:runs"), {"q": f"workflow:{json.dumps(text)}", "view": text})
    reader = Reader()
    reader.feed(answer.content.decode())
    assert (answer.status_code, reader.found) == (200, [])
    assert text in "".join(reader.text)


def inert(answer, *, status):
    """Everything the page says, after making sure that nothing of it acts."""
    reader = Reader()
    reader.feed(answer.content.decode())
    assert (answer.status_code, reader.found) == (status, [])
    return "".join(reader.text)


@pytest.mark.parametrize("text", NASTY)
def test_hostile_text_typed_into_forms_is_inert_where_it_is_shown_again(signed_in, simple, text):
    operator = signed_in("operator")
    given = {"workflow": "simple", "tenant": "acme", "key": text, "in.customer": text, "in.amount": text}
    page = inert(operator.post(reverse("console:start"), given), status=422)
    assert "Nothing was started." in page
    run = make_run(state="waiting")
    event = make_wait(run, name="paid", expires_at=now() + timedelta(days=1))
    given = {"payload": "{" + text, "reason": text, "once": text}
    assert text in inert(operator.post(reverse("console:send", args=[run.pk, event.pk]), given), status=422)
    given = {"expires_at": text, "reason": text}
    assert text in inert(operator.post(reverse("console:extend_wait", args=[run.pk, event.pk]), given), status=422)


@pytest.mark.parametrize("text", NASTY)
def test_hostile_names_of_members_and_tokens_are_inert(signed_in, text):
    admin, people = signed_in("admin"), reverse("console:people", args=["acme"])
    User.objects.create_user(text)
    admin.post(people, {"act": "put", "username": text, "role": "viewer"})
    tokens.issue("plain", tenant=make_tenant(), scopes=["runs:read"], lifetime=timedelta(days=1), actor=text)
    ApiToken.objects.update(name=text)
    assert inert(admin.get(people), status=200).count(text) >= 3
    wrong = {"act": "issue", "name": text, "days": text, "scope": [text]}
    inert(admin.post(people, wrong), status=422)
    inert(admin.post(people, {"act": "put", "username": "x", "role": text}), status=422)
    inert(admin.post(people, {"act": "remove", "username": text + "!"}), status=422)


def test_pages_carry_a_strict_policy_and_no_inline_anything(signed_in):
    answer = signed_in("viewer").get(reverse("console:overview"))
    policy = answer["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert answer["Cache-Control"] == "no-store"


def test_secrets_are_masked_in_every_view(signed_in):
    hidden = "hunter22!"
    run = make_run(
        state="failed", state_json=json.dumps({"password": hidden, "headers": {"Authorization": "Bearer sk_test_123"}}),
        error_class="ValueError", error_message=f"https://bot:{hidden}@crm.example answered Bearer sk_test_123",
    )  # fmt: skip
    make_effect(run, request_summary={"api_key": hidden, "url": f"https://u:{hidden}@x.example"}, state="succeeded",
                result=json.dumps({"token": hidden}))  # fmt: skip
    RunEvent.objects.create(run=run, event="fail", reason=f"password={hidden}", data={"traceback": f"token: {hidden}"})
    LogLine.objects.create(run=run, at=now(), step_id="s", level="info", message=f"secret={hidden}",
                           fields={"password": hidden})  # fmt: skip
    admin = signed_in("admin", sees_payloads=True)
    tabs = ("timeline", "events", "checkpoints", "effects", "logs", "audit")
    pages = [reverse("console:run", args=[run.pk]) + f"?tab={tab}" for tab in tabs]
    pages += [reverse("console:checkpoint", args=[run.pk, 0]), reverse("console:runs")]
    pages += [reverse("console:effect", args=[run.pk, run.effects.get().pk])]
    for address in pages:
        shown = admin.get(address).content.decode()
        assert hidden not in shown, address
        assert "sk_test_123" not in shown, address

"""Every route × role × tenant × method. A route that is not in the table below fails the suite."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse

from durableops.access import Permission
from durableops.console import demo, urls
from durableops.engine import file_links, guard, receiving
from durableops.engine.bulk import capture
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from durableops.engine.systems import place_hash
from runs.models import Membership, OutboxDestination, PauseSwitch, System
from tests.factories import (
    CAST,
    make_artifact,
    make_checkpoint,
    make_doubt,
    make_effect,
    make_endpoint,
    make_message,
    make_person,
    make_prompt,
    make_review,
    make_run,
    make_wait,
    make_worker,
    now,
)
from tests.runs.compensation_violations import make_compensation

HOUR = timedelta(hours=1)
CUSTOMER = '{"customer":"ann"}'
SOMEBODY = {"viewer", "operator", "reviewer", "admin", "stranger"}
MEMBERS = SOMEBODY - {"stranger"}
OPERATORS, REVIEWERS = {"operator", "admin"}, {"reviewer", "admin"}
SETTLERS = OPERATORS | REVIEWERS

# Route: (arguments, query or body, who gets a page on GET, who may POST). None: the method is not allowed.
ROUTES: dict[str, tuple[list[Any], set[str] | None, set[str] | None]] = {
    "home": ([], SOMEBODY, None),
    "sign_in": ([], SOMEBODY | {"nobody"}, SOMEBODY | {"nobody"}),
    "sign_out": ([], None, SOMEBODY),
    "look": ([], None, SOMEBODY),
    "overview": ([], SOMEBODY, None),
    "runs": ([], SOMEBODY, None),
    "runs_table": ([], SOMEBODY, None),
    "inbox": ([], SOMEBODY, None),
    "inbox_claim": (["doubt", "the doubt", "claim"], None, SETTLERS),
    "branch": (["run", 0, "retry-from"], OPERATORS, OPERATORS),
    "doubt": (["the doubt"], MEMBERS, None),
    "doubt_verb": (["the doubt", "happened"], SETTLERS, SETTLERS),
    "effects": ([], SOMEBODY, None),
    "systems": ([], SOMEBODY, None),
    "system": (["ledger"], MEMBERS, None),
    "system_verb": (["ledger", "pause"], {"admin"}, {"admin"}),
    "move_call": (["queued call"], OPERATORS, OPERATORS),
    "review": (["review"], REVIEWERS, None),
    "review_edit": (["review"], REVIEWERS, REVIEWERS),
    "review_group": (["f" * 32], REVIEWERS, REVIEWERS),
    "compensation": (["compensation"], MEMBERS, None),
    "compensation_verb": (["compensation", "waive"], None, SETTLERS),
    "bulks": ([], SOMEBODY, OPERATORS),
    "bulk": (["bulk"], MEMBERS, None),
    "bulk_verb": (["bulk", "start"], None, OPERATORS),
    "outbox": ([], SOMEBODY, None),
    "destination_verb": (["let_go_on"], None, SETTLERS),
    "message": (["message"], MEMBERS, None),
    "message_verb": (["message", "redeliver"], None, SETTLERS),
    "webhooks": (["acme"], {"admin"}, {"admin"}),
    "webhook": (["acme", "endpoint"], {"admin"}, {"admin"}),
    "retention": (["acme"], {"admin"}, {"admin"}),
    "workflows": ([], SOMEBODY, None),
    "workers": ([], SOMEBODY, None),
    "worker_kill": (["worker"], None, OPERATORS),
    "start": ([], SOMEBODY, OPERATORS),
    "people": (["acme"], {"admin"}, {"admin"}),
    "quotas": ([], SOMEBODY, None),
    "quota_of_tenant": (["acme"], {"admin"}, {"admin"}),
    "quota_of_resource": (["db-scan"], set(), set()),
    "pauses": ([], SOMEBODY, {"admin"}),
    "pause_lift": (["switch"], None, {"admin"}),
    "styleguide": ([], SOMEBODY, None),
    "run": (["run"], MEMBERS, None),
    "run_live": (["run"], MEMBERS, None),
    "checkpoint": (["run", 0], MEMBERS, None),
    "effect": (["run", "effect"], MEMBERS, None),
    "artifact": (["run", "artifact"], MEMBERS, None),
    "artifact_link": (["run", "artifact"], None, MEMBERS),
    "prompt": (["run", "prompt"], {"reviewer"}, {"reviewer"}),
    "file": (["token"], SOMEBODY | {"nobody"}, None),
    "decide": (["run", "wait", "approve"], REVIEWERS, REVIEWERS),
    "send": (["run", "event"], OPERATORS, OPERATORS),
    "bring_file": (["run", "wanted file"], OPERATORS, OPERATORS),
    "upload_link": (["run", "wanted file"], None, OPERATORS),
    "upload": (["upload token"], SOMEBODY | {"nobody"}, SOMEBODY | {"nobody"}),
    "extend_wait": (["run", "wait"], OPERATORS, OPERATORS),
    "run_verb": (["run", "pause"], OPERATORS, OPERATORS),
}
CODES = {"home": 302, "sign_out": 302, "look": 302}


@pytest.fixture
def scene(simple, settings, monkeypatch, media):
    settings.DEMO = True
    monkeypatch.setattr(demo, "kill", lambda worker, **more: None)  # whose it is to do is asked before
    worker = make_worker()
    make_run(state="running", worker=worker)
    run = make_run(state="waiting", head_seq=2)
    make_checkpoint(run, seq=1)
    # A right that is given by name, to whatever role.
    Membership.objects.filter(user=make_person("reviewer")).update(reads_prompts=True)
    artifact = make_artifact(run, readable_by="members")
    queued = make_effect(run, state="queued", safety="legacy", system=System.objects.create(name="ledger").pk)
    return {
        "run": run.pk,
        "the doubt": make_doubt(make_effect(run, state="in_doubt")).pk,
        "queued call": queued.pk,
        "place": place_hash(queued.pk, [queued.pk]),
        "worker": worker.pk,
        "wait": make_wait(run, kind="approval", name="delivery", facts_hash="f" * 64, expires_at=now() + HOUR).pk,
        "event": make_wait(run, correlation="k").pk,
        "review": make_review(make_run(state="in_review", workflow="simple", state_json=CUSTOMER)).pk,
        "wanted file": (wanted := make_wait(run, kind="file", name="contract", expires_at=now() + HOUR)).pk,
        "upload token": receiving.make_link(wanted.pk, tenant=run.tenant, actor="ann").token,
        "effect": make_effect(run).pk,
        "artifact": artifact.pk,
        "prompt": make_prompt(run).pk,
        "token": file_links.make(artifact, actor="ann").token,
        "compensation": make_compensation(tenant=run.tenant).pk,
        "bulk": capture.preview(verb("cancel"), Selection(words="1", ids=[run.pk]), tenant=run.tenant, actor="ann").pk,
        "destination": OutboxDestination.objects.create(
            tenant=run.tenant, name="mail", stopped_by="ann", stopped_at=now()
        ).pk,
        "message": make_message(run, state="delivered").pk,
        "endpoint": make_endpoint().pk,
        "plan": plan_of(run),  # of the facts as they are by now
        "switch": PauseSwitch.objects.create(scope="tenant", tenant=run.tenant, actor="ann", reason="why").pk,
    }


def plan_of(run) -> str:
    """What going back to its start would send again, as the dialog names it."""
    with connection.cursor() as cursor:
        return guard.plan(cursor, "retry_from", run.pk, seq=0).hash


def test_every_route_is_in_the_matrix_and_names_its_permission():
    routes = {pattern.name: pattern.callback for pattern in urls.urlpatterns}
    assert set(routes) == set(ROUTES)
    assert all(isinstance(getattr(view, "permission", None), Permission) for view in routes.values())


@pytest.mark.parametrize("name", [*CAST, "nobody"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["get", "post"])
def test_route_answers_each_role_as_the_matrix_says(scene, signed_in, route, name, method):
    arguments, readers, writers = ROUTES[route]
    allowed = readers if method == "get" else writers
    browser = Client() if name == "nobody" else signed_in(name)
    address = reverse(f"console:{route}", args=[scene.get(argument, argument) for argument in arguments])
    given = {
        "reason": "because",
        "facts_hash": "f" * 64,
        "expires_at": f"{now().year + 2}-01-01T12:00",
        "scope": "tenant:acme",
        "tenant": "acme",
        "act": {"webhook": "enable", "retention": "preview", "quota_of_tenant": "preview"}.get(route, "put"),
        "weight": "2",
        "priority_min": "0",
        "priority_max": "10",
        "destination": "mail",
        "url": "https://93.184.216.34/in",
        "username": "new",
        "role": "viewer",
        "workflow": "simple" if route == "start" else "",
        "verb": "cancel",
        "to": "first",
        "step": "only",
        "run": scene["run"],
        **({"file": SimpleUploadedFile("c.pdf", b"signed")} if method == "post" else {}),
        "plan_hash": {"doubt_verb": "", "move_call": scene["place"]}.get(route, scene["plan"]),
    }
    answer = getattr(browser, method)(address, given)
    if allowed is None:
        assert answer.status_code == 405
    elif name in allowed:
        assert answer.status_code in ((200, 302) if method == "post" else (CODES.get(route, 200),))
    elif name == "nobody":
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/sign-in/")
    else:
        # A member without the role is told so; for everybody else the run does not exist.
        # A shared resource is everybody's, and only a superuser changes its quota.
        lost = {"pause_lift": 409, "quota_of_resource": 403}.get(route, 404)
        assert answer.status_code == (403 if name in MEMBERS else lost)


@pytest.mark.parametrize(
    "verb", ["pause", "resume", "retry", "recheck", "extend", "add_budget", "cancel", "compensate"]
)
@pytest.mark.parametrize("name", ["viewer", "reviewer", "stranger"])
def test_verbs_change_nothing_for_people_without_the_role(signed_in, verb, name):
    run = make_run()
    before = (run.state, run.paused, run.cancel_requested)
    answer = signed_in(name).post(reverse("console:run_verb", args=[run.pk, verb]), {"reason": "because"})
    run.refresh_from_db()
    assert answer.status_code == (404 if name == "stranger" else 403)
    assert (run.state, run.paused, run.cancel_requested) == before


def test_run_of_another_tenant_answers_exactly_like_one_that_does_not_exist(signed_in):
    mine = signed_in("stranger")
    theirs = make_run()
    missing = "01990000-0000-7000-8000-000000000000"
    answers = [mine.get(reverse("console:run", args=[run_id])) for run_id in (theirs.pk, missing)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


def test_wait_of_another_run_cannot_be_decided_through_ones_own(signed_in):
    theirs = make_wait(make_run(state="waiting"), kind="approval", name="delivery")
    from tests.factories import make_tenant

    own = make_run(state="waiting", tenant=make_tenant("other"))
    answer = signed_in("stranger").post(reverse("console:decide", args=[own.pk, theirs.pk, "approve"]), {})
    theirs.refresh_from_db()
    assert (answer.status_code, theirs.state) == (404, "open")


def test_list_shows_only_runs_of_ones_tenants_whatever_the_filter_says(signed_in):
    run = make_run(workflow="secret-work")
    page = signed_in("stranger").get(reverse("console:runs"), {"q": "tenant:acme"})
    assert str(run.pk) not in page.content.decode()
    assert "secret-work" not in page.content.decode()


def test_payloads_are_hidden_from_those_without_payload_sight(signed_in):
    run = make_run(state_json='{"customer":"Miller"}')
    address = reverse("console:checkpoint", args=[run.pk, 0])
    assert b"Miller" not in signed_in("admin").get(address).content
    assert b"Miller" in signed_in("admin", sees_payloads=True).get(address).content


def test_style_guide_is_not_served_in_production(signed_in, settings):
    settings.PRODUCTION = True
    assert signed_in("admin").get(reverse("console:styleguide")).status_code == 404

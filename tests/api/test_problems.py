from __future__ import annotations

import itertools
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.urls import URLPattern, get_resolver

from durableops.api import docs, reading
from durableops.api.app import openapi_document, openapi_text
from durableops.engine.quotas import Owner, set_quota
from durableops.limits.rate_limits import Grant, limiter
from tests.api.clients import Caller, read

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
OPEN_TO_ALL = {"v1/openapi.json", "v1/docs"}
NEEDED = {"type", "title", "status", "code", "detail"}


def addresses() -> list[str]:
    """Every address under /api/, from the routes themselves, with ids that do not exist."""
    found = []
    for part in get_resolver().url_patterns:
        if str(part.pattern) == "api/":
            found += walk(part, "")
    return sorted(found)


def walk(resolver, prefix: str) -> list[str]:
    found = []
    for each in resolver.url_patterns:
        path = prefix + str(each.pattern)
        found += [path] if isinstance(each, URLPattern) else walk(each, path)
    return found


def concrete(path: str) -> str:
    return (
        path.replace("<uuidstr:run_id>", str(uuid4()))
        .replace("<int:wait_id>", "999999999")
        .replace("<int:file_id>", "999999999")
        .replace("<int:prompt_id>", "999999999")
        .replace("<int:doubt_id>", "999999999")
        .replace("<int:effect_id>", "999999999")
        .replace("<name>", "ledger")
        .replace("<verb>", "retry")
        .replace("<int:seq>", "0")
        .replace("<int:compensation_id>", "999999999")
        .replace("<int:message_id>", "999999999")
        .replace("<int:bulk_id>", "999999999")
        .replace("<int:preview_id>", "999999999")
        .replace("<int:hold_id>", "999999999")
        .replace("<int:erasure_id>", "999999999")
        or "nowhere/at/all"
    )


def assert_is_problem(response, *, status: int | None = None) -> dict:
    assert response["Content-Type"] == "application/problem+json"
    assert response["Cache-Control"] == "no-store"
    found = read(response)
    assert found.keys() >= NEEDED
    assert found["status"] == response.status_code == (status or response.status_code)
    assert found["code"] in docs.problem_codes()
    assert found["type"] == f"/api/v1/docs#{found['code']}"
    return found


def test_the_walk_finds_the_addresses():
    assert {"v1/runs", "v1/runs/<uuidstr:run_id>", "v1/events", "v1/openapi.json", ""} <= set(addresses())


@pytest.mark.parametrize("path", addresses())
def test_every_address_and_method_answers_well_or_with_a_problem(caller, path):
    bodies = (b"", b"{}", b'{"reason": 5, "name": [], "workflow": null}')
    for method, body in itertools.product(METHODS, bodies):
        response = caller.http.generic(
            method,
            f"/api/{concrete(path)}",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {caller.issued.secret}"},
        )
        if response.status_code < 300:
            assert method in ("GET", "HEAD"), method
        elif method == "HEAD":
            assert (response.content, response["Content-Type"]) == (b"", "application/problem+json")
        else:
            assert response.status_code < 500, method
            assert_is_problem(response)


NO_TOKENS = (
    None, "", "Bearer", "Bearer x", "Basic dTpw", "Bearer dop_000000000000_" + "a" * 43, "Bearer \xff",
    "Bearer " + "x" * 8000, "bearer\x00",
)  # fmt: skip


@pytest.mark.parametrize("path", [path for path in addresses() if path not in OPEN_TO_ALL and path])
def test_every_address_turns_away_whoever_has_no_token(caller, path):
    method = caller.send("OPTIONS", "/" + concrete(path).removeprefix("v1/"))["Allow"].split(", ")[0]
    for header in NO_TOKENS:
        headers = {} if header is None else {"Authorization": header}
        response = caller.http.generic(
            method, f"/api/{concrete(path)}", b"{}", content_type="application/json", headers=headers
        )
        assert assert_is_problem(response, status=401)["code"] == "token.refused"
        assert response["WWW-Authenticate"].startswith("Bearer")


def test_method_that_is_not_there_names_those_that_are(caller):
    response = caller.send("DELETE", "/runs")
    assert_is_problem(response, status=405)
    assert response["Allow"] == "GET, HEAD, POST"


def test_head_answers_like_get_without_the_body(caller):
    get, head = caller.get("/runs"), caller.send("HEAD", "/runs")
    assert (head.status_code, head.content) == (200, b"")
    assert head["Content-Length"] == str(len(get.content))


@pytest.mark.parametrize(
    "path", ["/api/v1", "/api/v1/", "/api/v1/runs/", "/api/v2/runs", "/api/", "/api/v1/%2e%2e/", "/api/v1/\u2603"]
)
def test_address_that_is_not_there_is_a_problem_and_no_page(caller, path):
    assert_is_problem(caller.http.get(path), status=404)


def test_database_that_is_away_is_a_503_that_says_when_to_come_again(caller, monkeypatch):
    def away(*args, **kwargs):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(reading, "page_of", away)
    response = caller.get("/runs")
    assert assert_is_problem(response, status=503)["code"] == "database.unavailable"
    assert response["Retry-After"] == "5"
    assert b"closed the connection" not in response.content


def test_error_of_ours_is_logged_whole_and_told_in_one_sentence(caller, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("a detail of ours")

    monkeypatch.setattr(reading, "page_of", broken)
    response = caller.get("/runs")
    assert_is_problem(response, status=500)
    assert b"detail of ours" not in response.content
    assert "a detail of ours" in caplog.text


def test_answers_are_kept_in_no_cache(caller):
    for response in (caller.get("/runs"), caller.start(), caller.http.get("/api/v1/openapi.json")):
        assert response["Cache-Control"] == "no-store"


def test_description_is_the_committed_one():
    committed = Path(__file__).with_name("openapi.json")
    assert openapi_text() + "\n" == committed.read_text(encoding="utf-8"), (
        "the description of the API changed. If that is meant: manage.py api_description > tests/api/openapi.json"
    )


def test_description_is_served_to_everybody(client):
    response = client.get("/api/v1/openapi.json")
    assert response.status_code == 200
    assert response.json() == openapi_document()
    assert response.json()["openapi"].startswith("3.1")


def test_page_of_the_api_names_every_address_and_problem_and_runs_no_script(client):
    response = client.get("/api/v1/docs")
    html = response.content.decode()
    assert response.status_code == 200
    for path in openapi_document()["paths"]:
        assert f"<code>{path}</code>" in html
    for code in docs.problem_codes():
        assert f'id="{code}"' in html
    assert "<script" not in html
    assert "style=" not in html
    assert "http://" not in html + response["Content-Security-Policy"]
    assert "unsafe" not in response["Content-Security-Policy"]


def test_refused_caller_of_a_known_run_learns_no_more_than_of_an_unknown_one(acme, order):
    caller = Caller(acme, ["runs:start"])
    run = read(caller.start())["id"]
    one, two = caller.get(f"/runs/{run}"), caller.get(f"/runs/{uuid4()}")
    assert one.status_code == two.status_code == 403
    assert one.content == two.content


def test_start_past_the_rate_says_when_to_try_again(acme, order, monkeypatch):
    set_quota(Owner(tenant=acme), {"starts_per_minute": 60}, actor="ada", reason="to try it")
    monkeypatch.setattr(limiter, "take", lambda limits, wanted=1: Grant(granted=0, wait_seconds=1.2))
    response = Caller(acme, ["runs:start"]).start()
    assert (response.status_code, response["Retry-After"]) == (429, "2")
    assert response.json()["code"] == "quota.rate"

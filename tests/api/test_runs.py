from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableops.api import reading
from runs.models import AuditEntry, PauseSwitch, Run
from runs.states import State
from tests import factories
from tests.api.clients import Caller, read

MOST_QUERIES = 8


def test_first_start_answers_201_with_the_run_and_where_it_is(caller):
    response = caller.start(labels={"region": "north"}, key="order-1")
    assert response.status_code == 201
    run = read(response)
    assert response["Location"] == f"/api/v1/runs/{run['id']}"
    assert "Idempotent-Replayed" not in response
    assert (run["workflow"], run["version"], run["state"], run["start_key"]) == ("order", 2, "queued", "order-1")
    assert run["labels"] == {"region": "north"}
    assert run["created_by"] == f"token {caller.issued.token.name} ({caller.issued.token.prefix})"
    assert Run.objects.get().pk == UUID(run["id"])


def test_replayed_start_answers_200_with_the_same_run_and_says_so(caller):
    first = read(caller.start(key="order-1"))
    response = caller.start(key="order-1")
    assert response.status_code == 200
    assert response["Idempotent-Replayed"] == "true"
    assert read(response)["id"] == first["id"]
    assert Run.objects.count() == 1


def test_key_with_another_input_is_a_conflict_that_names_the_run(caller):
    first = read(caller.start({"customer": "ann"}, key="order-1"))
    response = caller.start({"customer": "bob"}, key="order-1")
    assert response.status_code == 409
    assert read(response)["code"] == "run.start_conflict"
    assert read(response)["run"] == first["id"]
    assert Run.objects.count() == 1


def test_refused_start_is_not_remembered_and_the_corrected_one_may_use_its_key(caller):
    assert caller.start({"customer": 5}, key="K").status_code == 400
    assert caller.start({"customer": "ann"}, key="K").status_code == 201


def test_key_of_a_start_does_not_reach_other_addresses(caller):
    run = read(caller.start(key="K"))
    response = caller.post(f"/runs/{run['id']}/cancel", {"reason": "not wanted"}, key="K")
    assert response.status_code == 200
    assert Run.objects.get().state == State.CANCELLED
    event = caller.post("/events", {"name": "paid"}, key="K")
    assert event.status_code == 201


# C037: nobody replaces the input under a worker's hands, because nobody replaces it at all.
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_input_of_a_run_is_replaced_by_nobody(caller, method):
    started = read(caller.start({"customer": "ann"}))

    response = caller.send(method, f"/runs/{started['id']}", {"input": {"customer": "bob"}})

    assert response.status_code == 405
    assert read(caller.get(f"/runs/{started['id']}"))["input"]["value"]["customer"] == "ann"


def test_key_of_one_tenant_is_free_in_another(caller, stranger):
    mine, theirs = caller.start(key="K"), stranger.start(key="K")
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert read(mine)["id"] != read(theirs)["id"]


def test_starts_without_a_key_are_runs_of_their_own(caller):
    assert read(caller.start())["id"] != read(caller.start())["id"]


def test_problem_of_the_input_points_into_the_body(caller):
    response = caller.start({"customer": "ann", "notes": ["a", 7]})
    assert response.status_code == 400
    found = read(response)
    assert (found["code"], found["in"], found["path"]) == ("input.refused", "body", "/input/notes/1")
    assert "'7'" not in found["detail"]


def test_unknown_workflow_is_a_problem_of_its_own_and_writes_nothing(caller):
    response = caller.start(workflow="nothing")
    assert (response.status_code, read(response)["code"]) == (404, "workflow.not_found")
    assert caller.start(version=9).status_code == 404
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"priority": 101}, "/priority"),
        ({"priority": "5"}, "/priority"),
        ({"version": 0}, "/version"),
        ({"start_at": "2026-01-01T00:00:00"}, "/start_at"),
        ({"start_at": "9999-12-31T23:59:59-12:00"}, "/start_at"),
        ({"start_at": 5}, "/start_at"),
        ({"start_at": "1e3"}, "/start_at"),
        ({"labels": {"a": 5}}, "/labels/a"),
        ({"surprise": 1}, "/surprise"),
    ],
)
def test_field_that_is_not_accepted_is_named(caller, more, path):
    response = caller.start(**more)
    assert response.status_code == 400
    assert read(response)["path"] == path
    assert not Run.objects.exists()


def test_start_at_holds_the_run_until_then_and_the_answer_says_when(caller):
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    run = read(caller.get(f"/runs/{read(caller.start(start_at=later))['id']}"))
    assert run["why"]["code"] == "queued.not_due"
    assert datetime.fromisoformat(run["why"]["wakes_at"]) == datetime.fromisoformat(later)


def test_run_shows_why_it_waits_and_what_wakes_it(caller, acme):
    run = factories.make_run(state=State.WAITING, tenant=acme)
    expires = datetime.now(UTC) + timedelta(days=1)
    wait = factories.make_wait(
        run, kind="approval", name="delivery", facts='{"amount":5}', facts_hash="f" * 64, expires_at=expires
    )
    found = read(caller.get(f"/runs/{run.pk}"))
    assert found["why"]["code"] == "waiting.approval"
    assert "'delivery'" in found["why"]["detail"]
    assert datetime.fromisoformat(found["why"]["wakes_at"]) == expires
    assert [(each["id"], each["facts_hash"], each["facts"]) for each in found["waits"]] == [
        (wait.pk, "f" * 64, {"amount": 5})
    ]


def test_queued_run_names_the_gates_in_its_way(caller, acme, other):
    run = factories.make_run(tenant=acme, paused=True, paused_by="oli")
    PauseSwitch.objects.create(scope="tenant", tenant=acme, actor="ada", reason="maintenance")
    PauseSwitch.objects.create(scope="tenant", tenant=other, actor="eve", reason="theirs")
    factories.make_worker(versions={"made": [7]}, plans=[])
    codes = [gate["code"] for gate in read(caller.get(f"/runs/{run.pk}"))["why"]["gates"]]
    assert codes == ["paused", "switch.tenant", "workers.version"]


def test_finished_run_shows_its_result_and_input(caller, acme):
    run = factories.make_run(
        state=State.SUCCEEDED, tenant=acme, state_json='{"customer":"ann","password":"hunter22"}',
        progress_done=3, progress_total=4,
    )  # fmt: skip
    factories.make_checkpoint(run, seq=1, kind="finish", output='{"sent":3}')
    Run.objects.filter(pk=run.pk).update(head_seq=1)
    found = read(caller.get(f"/runs/{run.pk}"))
    assert found["result"]["value"] == {"sent": 3}
    assert found["input"]["value"] == {"customer": "ann", "password": "••••••"}
    assert found["progress"] == {"done": 3, "total": 4, "note": ""}
    assert found["why"]["code"] == "ended.succeeded"


def test_failed_run_shows_its_error_without_credentials(caller, acme):
    factories.make_run(
        state=State.FAILED, tenant=acme, error_class="Boom", error_message="GET https://u:geheim@host/ failed",
        error_fingerprint="abc",
    )  # fmt: skip
    page = caller.get("/runs")
    assert read(page)["runs"][0]["error"]["kind"] == "Boom"
    assert b"geheim" not in page.content


def test_token_without_payload_sight_sees_references_only(acme, order):
    caller = Caller(acme, ["runs:read", "runs:start"])
    started = caller.get(f"/runs/{read(caller.start({'customer': 'a-secret-name'}))['id']}")
    run = factories.make_run(state=State.WAITING, tenant=acme)
    factories.make_wait(run, kind="approval", facts='{"amount":"a-secret-sum"}', facts_hash="f" * 64)
    shown = caller.get(f"/runs/{run.pk}")
    assert b"a-secret" not in started.content + shown.content
    assert read(started)["input"] == {"checkpoint": 0, "bytes": 50, "shown": False, "value": None}
    assert read(shown)["waits"][0]["facts_hash"] == "f" * 64


@pytest.mark.parametrize("run_id", [uuid4(), "x", "00000000-0000-0000-0000-00000000000g", "..%2f", "%00", "-1"])
def test_run_that_is_not_there_is_a_404(caller, run_id):
    assert caller.get(f"/runs/{run_id}").status_code == 404


def test_run_of_another_tenant_reads_like_one_that_never_was(caller, stranger):
    theirs = read(stranger.start())["id"]
    never = str(uuid4())
    for method, path, body in [
        ("GET", "/runs/{}", None),
        ("POST", "/runs/{}/cancel", {"reason": "x"}),
        ("POST", "/runs/{}/pause", {"reason": "x"}),
        ("POST", "/runs/{}/resume", {"reason": "x"}),
        ("POST", "/runs/{}/retry", {"reason": "x"}),
    ]:
        one = caller.send(method, path.format(theirs), body)
        two = caller.send(method, path.format(never), body)
        assert one.status_code == two.status_code == 404
        assert one.content.replace(theirs.encode(), b"") == two.content.replace(never.encode(), b"")
    assert Run.objects.get().state == State.QUEUED
    assert not AuditEntry.objects.filter(target_kind="run").exists()


def test_list_shows_only_the_tenants_own_runs_newest_first(caller, stranger):
    first, second = read(caller.start())["id"], read(caller.start())["id"]
    stranger.start()
    assert [run["id"] for run in read(caller.get("/runs"))["runs"]] == [second, first]


def test_pages_show_every_run_once_also_those_of_one_instant(caller, acme):
    at = datetime.now(UTC)
    made = {str(factories.make_run(tenant=acme, created_at=at).pk) for _ in range(7)}
    seen, cursor = [], ""
    while cursor is not None:
        page = read(caller.get(f"/runs?limit=3&cursor={cursor}"))
        seen += [run["id"] for run in page["runs"]]
        cursor = page["next"]
    assert len(seen) == 7
    assert set(seen) == made


def test_run_that_arrives_while_paging_moves_nothing(caller, acme):
    for _ in range(4):
        factories.make_run(tenant=acme)
    page = read(caller.get("/runs?limit=2"))
    factories.make_run(tenant=acme)
    following = read(caller.get(f"/runs?limit=2&cursor={page['next']}"))
    assert not {run["id"] for run in page["runs"]} & {run["id"] for run in following["runs"]}
    assert following["next"] is None


def test_filters_hold_together(caller, acme):
    old = datetime.now(UTC) - timedelta(days=2)
    plan = factories.make_plan("billing")
    wanted = factories.make_run(state=State.FAILED, tenant=acme, plan=plan, labels={"region": "north", "tier": "1"})
    factories.make_run(state=State.FAILED, tenant=acme, plan=plan, labels={"region": "south", "tier": "1"})
    factories.make_run(state=State.FAILED, tenant=acme, plan=plan, labels={"region": "north"}, created_at=old)
    factories.make_run(tenant=acme, labels={"region": "north", "tier": "1"})
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat().replace("+", "%2B")
    path = f"/runs?state=failed&state=waiting&workflow=billing&label=region:north&label=tier:1&since={since}"
    assert [run["id"] for run in read(caller.get(path))["runs"]] == [str(wanted.pk)]


def test_rare_filter_looks_through_a_window_and_its_cursor_goes_on(caller, acme, monkeypatch):
    monkeypatch.setattr(reading, "WINDOW", 3)
    wanted = factories.make_run(tenant=acme, labels={"rare": "yes"})
    for _ in range(7):
        factories.make_run(tenant=acme)
    found, cursor, pages = [], "", 0
    while cursor is not None:
        page = read(caller.get(f"/runs?label=rare:yes&cursor={cursor}"))
        found += [run["id"] for run in page["runs"]]
        cursor, pages = page["next"], pages + 1
    assert found == [str(wanted.pk)]
    assert pages == 3


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=ten", "limit"),
        ("state=asleep", "0"),
        ("since=yesterday", "since"),
        ("since=96818", "since"),
        ("since=2026-01-01T00:00:00", "since"),
        ("label=region", "label"),
        ("label=a:%00", "label"),
        ("label=a:1&label=a:2", "label"),
        ("workflow=%00", "workflow"),
        ("workflow=%ff%fe", ""),
        ("stat=failed", "stat"),
        ("cursor=abc", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "x" * 5000, "cursor"),
        ("cursor=WyJ4Il0:1abc:zzz", "cursor"),
    ],
)
def test_query_that_is_not_accepted_is_refused_or_finds_nothing(caller, query, path):
    response = caller.get(f"/runs?{query}")
    if not path:
        assert read(response)["runs"] == []
        return
    assert response.status_code == 400
    assert read(response)["path"] == path


def test_cursor_of_another_list_is_refused(caller, acme):
    for _ in range(3):
        factories.make_run(tenant=acme)
    cursor = read(caller.get("/runs?limit=1"))["next"]
    response = caller.get(f"/runs?limit=1&state=queued&cursor={cursor}")
    assert response.status_code == 400
    assert "other filters" in read(response)["detail"]


def test_cursor_of_one_tenant_shows_another_nothing_of_it(caller, stranger, acme):
    for _ in range(3):
        factories.make_run(tenant=acme)
    cursor = read(caller.get("/runs?limit=1"))["next"]
    assert read(stranger.get(f"/runs?limit=1&cursor={cursor}"))["runs"] == []


def statements(work) -> int:
    """Statements that read or write; beginning and ending transactions is not one."""
    with CaptureQueriesContext(connection) as captured:
        work()
    control = ("SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT")
    return len([query for query in captured if not query["sql"].startswith(control)])


def test_no_reading_or_starting_address_needs_more_than_eight_statements(caller, acme):
    run = factories.make_run(tenant=acme)
    waiting = factories.make_run(state=State.WAITING, tenant=acme)
    for _ in range(20):
        factories.make_wait(waiting, name=f"w{_}")
        factories.make_run(tenant=acme)
    caller.start(key="K")
    counted = {
        "start": statements(lambda: caller.start()),
        "replay": statements(lambda: caller.start(key="K")),
        "get": statements(lambda: caller.get(f"/runs/{run.pk}")),
        "get waiting": statements(lambda: caller.get(f"/runs/{waiting.pk}")),
        "list": statements(lambda: caller.get("/runs?limit=100")),
        "filtered": statements(lambda: caller.get("/runs?limit=100&label=a:b")),
        "event": statements(lambda: caller.post("/events", {"name": "paid"})),
    }
    assert {name: count for name, count in counted.items() if count > MOST_QUERIES} == {}

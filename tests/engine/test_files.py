"""Files of runs: named by a commit, written before it, found again by content, and gone when nothing will name them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage

from durableops import Retry, State, failpoints, step, tool, workflow
from durableops.artifacts import loose, storage
from durableops.conf import override_conf
from durableops.engine import files as engine_files
from durableops.errors import ResultGone
from durableops.upkeep import loose_files
from runs.models import Artifact, Checkpoint, IdempotencyRecord, LooseFile, Run
from tests.factories import make_run, make_worker

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
LARGE = [{"row": n, "text": "x" * 100} for n in range(200)]


class Nothing(State):
    pass


def one_step(function, **options):
    made = {"a": step(id="a", retry=AT_ONCE)(function)} | {
        name: step(id=name, retry=AT_ONCE)(more) for name, more in options.items()
    }
    workflow(name="one", version=1, state=Nothing)(type("One", (), made))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def on_disk() -> list[Path]:
    root = Path(default_storage.path("artifacts"))
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.exists() else []


@pytest.fixture(autouse=True)
def _disarmed(media):
    yield
    failpoints.arm("")


@pytest.mark.parametrize("data", [b"bytes", "text", "path", "pieces"])
def test_artifact_is_kept_under_its_hash(engine, tmp_path, data):
    raw = data.encode() if isinstance(data, str) else data
    content: Any = data
    if data == "path":
        content = tmp_path / "file"
        content.write_bytes(raw)
    if data == "pieces":
        content = iter([b"pie", b"ces"])

    one_step(lambda run: run.artifact("report", content, content_type="text/plain"))
    run = engine.run("one")
    artifact = Artifact.objects.get(run=run)
    assert output(run) == artifact.content_hash == hashlib.sha256(raw).hexdigest()
    assert (artifact.size_bytes, artifact.readable_by, artifact.sealed_with) == (len(raw), "payloads", "")
    assert Path(default_storage.path(artifact.path)).read_bytes() == raw
    assert not LooseFile.objects.exists()


def test_writing_a_file_is_an_effect_keyed_by_its_content(engine):
    one_step(lambda run: run.artifact("report", b"whole"))
    run = engine.run("one")
    effect = IdempotencyRecord.objects.get(run=run)
    assert (effect.tool, effect.resource, effect.safety, effect.state) == (
        "run.artifact",
        "report",
        "keyed",
        "succeeded",
    )
    assert effect.request_hash == hashlib.sha256(b"whole").hexdigest()


def test_same_bytes_are_kept_once_and_other_bytes_beside_them(engine):
    def a(run: Any):
        run.artifact("report", "same")
        run.artifact("report", "same")
        if run.attempt == 1:
            raise ValueError
        run.artifact("report", "other")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert Artifact.objects.filter(run=run).count() == 2
    assert len(on_disk()) == 2
    assert IdempotencyRecord.objects.filter(run=run).count() == 2


def test_a_stream_that_comes_again_leaves_no_second_file(engine):
    def a(run: Any):
        run.artifact("report", iter([b"sa", b"me"]))
        if run.attempt == 1:
            raise ValueError

    one_step(a)
    run = engine.run("one")
    assert Artifact.objects.filter(run=run).count() == 1
    assert len(on_disk()) == 2
    assert loose_files.remove_some(engine.worker.database) == 1
    assert [str(path) for path in on_disk()] == [default_storage.path(Artifact.objects.get().path)]


def test_a_step_reads_what_an_earlier_one_kept(engine):
    def a(run: Any):
        run.artifact("rows", b"old", data_class="temp_file")
        run.artifact("rows", b"new", data_class="temp_file")
        assert run.open_artifact("rows").read() == b"new"

    def b(run: Any):
        first = run.open_artifact("rows", content_hash=hashlib.sha256(b"old").hexdigest())
        return [first.read().decode(), run.open_artifact("rows").read().decode()]

    one_step(a, b=b)
    assert output(engine.run("one")) == ["old", "new"]


def test_async_steps_keep_and_read_files_too(engine):
    async def a(run: Any):
        await run.artifact("rows", b"new")
        return (await run.open_artifact("rows")).read().decode()

    one_step(a)
    assert output(engine.run("one")) == "new"


def test_opening_a_file_that_was_never_kept_fails_the_step_at_once(engine):
    one_step(lambda run: run.open_artifact("rows"))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert "has no file 'rows'" in run.error_message


@pytest.mark.parametrize("data_class", ["temp_file", "raw_prompt"])
def test_what_is_kept_apart_is_sealed_and_for_few_eyes(engine, data_class):
    one_step(lambda run: run.artifact("rows", b"secret rows", data_class=data_class, readers="members"))
    engine.run("one")
    artifact = Artifact.objects.get()
    assert (artifact.readable_by, bool(artifact.sealed_with)) == ("prompts", True)
    assert b"secret" not in Path(default_storage.path(artifact.path)).read_bytes()
    assert artifact.content_hash == hashlib.sha256(b"secret rows").hexdigest()


@pytest.mark.parametrize("name", ["", "a\0", "x" * 300])
def test_artifact_needs_a_name_that_can_be_one(engine, name):
    one_step(lambda run: run.artifact(name, b"x"))
    assert engine.run("one").state == "failed"


@pytest.mark.parametrize("content_type", ["a\0", "x" * 101, ""])
def test_artifact_needs_a_content_type_that_can_be_one(engine, content_type):
    one_step(lambda run: run.artifact("a", b"x", content_type=content_type))
    assert engine.run("one").state == "failed"


@pytest.mark.parametrize("options", [{"data_class": "junk"}, {"data_class": "audit"}, {"readers": "everybody"}])
def test_artifact_of_an_unknown_class_fails_the_step_with_what_there_is(engine, options):
    one_step(lambda run: run.artifact("a", b"x", **options))
    run = engine.run("one")
    assert run.state == "failed"
    assert "give one of" in run.error_message


@pytest.mark.parametrize("point", ["before_file", "after_file"])
def test_an_upload_that_dies_half_way_leaves_nothing_visible(engine, monkeypatch, point):
    def a(run: Any):
        if run.entry == 1:
            failpoints.arm(f"{point}=raise")
        run.artifact("report", b"whole")

    one_step(a)
    # A worker that dies says nothing more: what the step raised is never written.
    real = engine_files.store
    died = []

    def dying(hand: Any, data: Any, *, sealed: bool) -> Any:
        try:
            return (yield from real(hand, data, sealed=sealed))
        except failpoints.FailpointReached:
            died.append(hand)
            assert not Artifact.objects.exists()
            assert LooseFile.objects.count() == 1
            # Its run is still in its hand: nobody removes what it may yet name.
            assert loose_files.remove_some(engine.worker.database) == 0
            engine.lose_worker()
            raise

    monkeypatch.setattr(engine_files, "store", dying)
    engine.start("one")
    engine.worker.drain()
    monkeypatch.undo()
    assert died
    assert loose_files.remove_some(engine.worker.database) == 1
    assert on_disk() == []
    engine.drain()
    run = Run.objects.get()
    assert run.state == "succeeded"
    assert [path.read_bytes() for path in on_disk()] == [b"whole"]


def test_a_file_from_outside_is_given_up_after_its_time_and_cannot_be_completed_then(database):
    run = make_run()
    stored = storage.write(storage.new_path(tenant="acme", run_id=run.pk), b"x")
    with database.transaction() as cursor:
        loose.note(cursor, stored.path, tenant_id=run.tenant_id, run_id=run.pk, abandon_seconds=60)
    assert loose_files.remove_some(database) == 0
    LooseFile.objects.update(abandon_after="2020-01-01T00:00Z")
    assert loose_files.remove_some(database) == 1
    assert on_disk() == []
    with database.transaction() as cursor:
        assert not loose.claim(cursor, stored.path)


def test_a_file_from_outside_that_was_completed_stays(database):
    run = make_run()
    stored = storage.write(storage.new_path(tenant="acme", run_id=run.pk), b"x")
    with database.transaction() as cursor:
        loose.note(cursor, stored.path, tenant_id=run.tenant_id, run_id=run.pk, abandon_seconds=60)
    with database.transaction() as cursor:
        assert loose.claim(cursor, stored.path)
    assert loose_files.remove_some(database) == 0
    assert len(on_disk()) == 1


def test_what_was_doomed_is_removed_once_and_a_crash_in_between_removes_it_again(database, monkeypatch):
    run = make_run()
    stored = storage.write(storage.new_path(tenant="acme", run_id=run.pk), b"x")
    with database.transaction() as cursor:
        loose.doom(cursor, [(stored.path, run.tenant_id, run.pk)])
        loose.doom(cursor, [])
    real = storage.remove
    monkeypatch.setattr(storage, "remove", lambda path: real(path) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loose_files.remove_some(database)
    monkeypatch.undo()
    assert (on_disk(), LooseFile.objects.count()) == ([], 1)
    assert loose_files.remove_some(database) == 1
    assert not LooseFile.objects.exists()


def test_a_file_of_a_run_that_another_worker_took_is_removed(database):
    run = make_run(state="running")
    with database.transaction() as cursor:
        loose.note(cursor, "artifacts/acme/x", tenant_id=run.tenant_id, run_id=run.pk, worker_id=run.worker_id)
    assert loose_files.remove_some(database) == 0
    Run.objects.filter(pk=run.pk).update(worker=make_worker(), fence=2)
    assert loose_files.remove_some(database) == 1


def large_tool(**options):
    calls: list[str] = []

    @tool(name="fetch", retry=AT_ONCE, large_result="artifact", **options)
    def fetch(call: Any) -> Any:
        calls.append(call.key)
        return LARGE

    return fetch, calls


@pytest.mark.parametrize("safety", ["read", "keyed"])
def test_a_result_over_the_limit_becomes_a_file_and_comes_back_whole(engine, safety):
    fetch, calls = large_tool(safety=safety)

    def a(run: Any):
        found = run.call(fetch, resource="all")
        if run.attempt == 1:
            raise ValueError
        return [len(found), found == LARGE]

    one_step(a)
    with override_conf(payload_max_bytes=2_000):
        run = engine.run("one")
    assert output(run) == [200, True]
    assert len(calls) == 1
    effect, artifact = IdempotencyRecord.objects.get(run=run), Artifact.objects.get(run=run)
    assert (effect.state, effect.result, effect.reused) == ("succeeded", None, 1)
    assert (artifact.name, artifact.data_class) == (f"result/{effect.key}", "effect_body")
    assert artifact.size_bytes > 2_000


def test_a_result_within_the_limit_stays_in_the_record(engine):
    fetch, _ = large_tool(safety="read")
    one_step(lambda run: len(run.call(fetch, resource="all")))
    run = engine.run("one")
    assert IdempotencyRecord.objects.get(run=run).result is not None
    assert not Artifact.objects.exists()


def test_a_result_beyond_every_limit_is_refused_as_before(engine):
    fetch, _ = large_tool(safety="keyed")
    one_step(lambda run: run.call(fetch, resource="all"))
    with override_conf(payload_max_bytes=2_000, large_result_max_bytes=5_000):
        run = engine.run("one")
    assert (run.state, run.error_class) == ("failed", "durableops.errors.PayloadRefused")
    assert not Artifact.objects.exists()


def test_a_result_that_retention_took_is_told_and_the_call_is_not_made_again(engine):
    fetch, calls = large_tool(safety="keyed", scope="tenant")
    one_step(lambda run: len(run.call(fetch, resource="all")))
    with override_conf(payload_max_bytes=2_000):
        engine.run("one")
        Artifact.objects.all().delete()
        later = engine.run("one")
    assert (later.state, later.error_class) == ("failed", f"durableops.errors.{ResultGone.__name__}")
    assert len(calls) == 1


def test_many_large_results_of_one_round_are_kept_each(engine):
    fetch, calls = large_tool(safety="keyed")

    def a(run: Any):
        found = run.call_many(fetch, [{"resource": str(n)} for n in range(3)])
        if run.attempt == 1:
            raise ValueError
        return [len(one) for one in found]

    one_step(a)
    with override_conf(payload_max_bytes=2_000):
        assert output(engine.run("one")) == [200, 200, 200]
    assert (len(calls), Artifact.objects.count()) == (3, 3)

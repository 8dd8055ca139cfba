"""Waiting for a file: brought once, kept with the run, by who may or by a link that works once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import Retry, State, step, workflow
from durableops.artifacts import storage
from durableops.engine import receiving
from durableops.engine.inbound import send_event
from durableops.engine.receiving import Brought
from durableops.errors import ArtifactGone, ArtifactNotFound, InputRefused, InputTooLarge, TransitionRefused
from runs.models import Artifact, AuditEntry, Checkpoint, LooseFile, Receipt, Run, Wait
from tests.factories import now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("media")]

AT_ONCE = Retry(max_attempts=2, first_delay=0.0, jitter=0.0)


class Nothing(State):
    n: int = 0


def waits(engine, ask=None, **options) -> tuple[Run, Wait]:
    def reads(run: Any):
        found = run.wait_for_file("contract", **options)
        with run.open_artifact("contract", content_hash=found.content_hash) as file:
            return [found.file_name, found.by, found.size_bytes, file.read().decode()]

    workflow(name="waiting", version=1, state=Nothing)(
        type("Waiting", (), {"a": step(id="a", retry=AT_ONCE)(ask or reads)})
    )
    run = engine.run("waiting")
    return run, Wait.objects.get(run=run)


def bring(engine, wait, content=b"signed", *, name="c.pdf", kind="application/pdf", size=None, actor="otto"):
    pieces = [content[:3], content[3:]]
    file = Brought(name=name, content_type=kind, size=len(content) if size is None else size, pieces=pieces)
    return receiving.receive(wait.pk, tenant=engine.tenant, actor=actor, file=file)


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_file_that_is_brought_is_kept_with_the_run_and_read_by_its_step(engine):
    run, wait = waits(engine, question="The signed contract?", accept=[".pdf"])
    assert (wait.kind, wait.question, run.state) == ("file", "The signed contract?", "waiting")
    bring(engine, wait)
    engine.another_worker().drain()
    assert output(run) == ["c.pdf", "otto", 6, "signed"]
    kept = Artifact.objects.get(run=run)
    assert (kept.name, kept.data_class, kept.readable_by, kept.step_id) == ("contract", "input", "payloads", "a")
    assert Receipt.objects.get(run=run).cause == "file"
    assert AuditEntry.objects.get(verb="bring_file").after["bytes"] == 6
    assert not LooseFile.objects.exists()


def test_second_file_is_refused_and_leaves_nothing_behind(engine):
    _, wait = waits(engine)
    bring(engine, wait)
    with pytest.raises(TransitionRefused, match="is answered by otto"):
        bring(engine, wait, b"another", actor="rita")
    assert Artifact.objects.count() == 1
    assert not LooseFile.objects.filter(doomed=False).exists()


def test_of_two_who_bring_a_file_at_once_one_is_told_and_their_bytes_go(engine, monkeypatch):
    _, wait = waits(engine)
    write = storage.write
    first: list[str] = []

    def overtaken(path, data, *, sealed=False):
        stored = write(path, data, sealed=sealed)
        if not first:
            first.append(path)
            bring(engine, wait, b"quicker", actor="rita")
        return stored

    monkeypatch.setattr(storage, "write", overtaken)
    with pytest.raises(TransitionRefused):
        bring(engine, wait)
    assert Wait.objects.get().answered_by == "rita"
    assert [one.path for one in LooseFile.objects.all()] == first
    assert LooseFile.objects.get().doomed


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "c.exe", "kind": "application/x-msdownload"}, InputRefused), ({"name": ""}, InputRefused),
        ({"name": "a\nb.pdf"}, InputRefused), ({"name": "x" * 201}, InputRefused),
        ({"content": b"x" * 11}, InputTooLarge), ({"content": b"x" * 11, "size": 1}, InputTooLarge),
    ],
)  # fmt: skip
def test_file_that_is_not_wanted_is_refused_and_the_run_goes_on_waiting(engine, given, error):
    _, wait = waits(engine, accept=[".pdf", "image/*"], max_bytes=10)
    with pytest.raises(error):
        bring(engine, wait, **given)
    assert (Wait.objects.get().state, Artifact.objects.count()) == ("open", 0)
    assert not LooseFile.objects.filter(doomed=False).exists()
    bring(engine, wait, name="scan", kind="image/png")


@pytest.mark.parametrize(
    "options",
    [{"accept": ["pdf"]}, {"max_bytes": 0}, {"max_bytes": 2**60}, {"data_class": "deliverable"}, {"readers": "all"}],
    ids=str,
)
def test_wish_that_makes_no_sense_fails_the_step_and_asks_nobody(engine, options):
    workflow(name="waiting", version=1, state=Nothing)(
        type("Waiting", (), {"a": step(id="a", retry=AT_ONCE)(lambda run: run.wait_for_file("c", **options))})
    )
    run = engine.run("waiting")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert not Wait.objects.exists()


def test_temporary_file_is_encrypted_and_for_few_eyes(engine):
    run, wait = waits(engine, data_class="temp_file")
    bring(engine, wait)
    kept = Artifact.objects.get()
    assert (kept.readable_by, bool(kept.sealed_with)) == ("prompts", True)
    engine.drain()
    assert output(run)[-1] == "signed"


def test_same_bytes_in_a_second_round_are_kept_once(engine):
    def a(run: Any):
        return [run.wait_for_file("contract", key=key).content_hash for key in ("1", "2")]

    run, _ = waits(engine, a)
    for _ in range(2):
        bring(engine, Wait.objects.get(state="open"))
        engine.drain()
    assert len(set(output(run))) == 1
    assert Artifact.objects.count() == 1


def test_file_that_nobody_brings_follows_the_policy_of_its_clock_and_cannot_come_late(engine):
    run, wait = waits(
        engine, lambda run: run.wait_for_file("contract", timeout=timedelta(hours=1), on_timeout="continue")
    )
    Wait.objects.update(expires_at=now() - timedelta(seconds=1))
    with pytest.raises(TransitionRefused):
        bring(engine, wait)
    engine.rounds()
    engine.drain()
    assert output(run) is None


def test_event_of_the_same_name_is_no_file(engine):
    run, _ = waits(engine)
    assert send_event("contract", tenant=engine.tenant, actor="desk", payload={}).answered == 0
    run.refresh_from_db()
    assert run.state == "waiting"


def test_link_lets_somebody_outside_bring_it_once(engine):
    _, wait = waits(engine, timeout=timedelta(days=1))
    made = receiving.make_link(wait.pk, tenant=engine.tenant, actor="otto")
    wait.refresh_from_db()
    assert made.expires_at == wait.expires_at
    found, by = receiving.follow_link(made.token)
    assert (found.pk, by) == (wait.pk, "otto")
    bring(engine, wait, actor="link of otto")
    with pytest.raises(ArtifactGone, match="works once"):
        receiving.follow_link(made.token)
    assert AuditEntry.objects.filter(verb="link_upload", actor="otto").count() == 1


def test_link_ends_with_its_time_and_a_made_up_one_is_none(engine):
    _, wait = waits(engine, timeout=timedelta(days=1))
    made = receiving.make_link(wait.pk, tenant=engine.tenant, actor="otto")
    with pytest.raises(ArtifactNotFound):
        receiving.follow_link(made.token[:-2] + "xx")
    Wait.objects.update(state="cancelled")
    with pytest.raises(ArtifactGone):
        receiving.follow_link(made.token)

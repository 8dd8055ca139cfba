"""Decisions and artifacts: made once, found again by what they were made of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage

from durableops import Retry, State, step, workflow
from runs.models import Artifact, Checkpoint, Decision, Run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Nothing(State):
    pass


def one_step(function):
    workflow(name="one", version=1, state=Nothing)(type("One", (), {"a": step(id="a", retry=AT_ONCE)(function)}))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_decision_is_made_once_for_its_inputs_and_committed_before_anything_relies_on_it(engine):
    made = []

    def model(x: int) -> dict[str, int]:
        made.append(x)
        return {"y": x * 2}

    def a(run: Any):
        first = run.decide("route", {"x": 1}, model)
        assert Decision.objects.count() == 1
        if run.attempt == 1:
            raise ValueError("after the decision")
        return [first, run.decide("route", {"x": 2}, model, key="second")]

    one_step(a)
    assert output(engine.run("one")) == [{"y": 2}, {"y": 4}]
    assert made == [1, 2]


def test_other_inputs_are_another_decision(engine):
    made = []

    def model(x: int) -> int:
        made.append(x)
        return x

    def a(run: Any):
        found = run.decide("route", {"x": run.attempt}, model)
        if run.attempt < 2:
            raise ValueError
        return found

    one_step(a)
    assert output(engine.run("one")) == 2
    assert made == [1, 2]


@pytest.mark.parametrize("value", [pytest.param(object(), id="object"), float("nan"), "\ud800", "a\0"], ids=repr)
def test_decision_that_cannot_be_kept_fails_the_step(engine, value):
    one_step(lambda run: run.decide("route", {}, lambda: value))
    run = engine.run("one")
    assert run.state == "failed"
    assert not Decision.objects.exists()


@pytest.mark.parametrize("data", [b"bytes", "text", "path"])
def test_artifact_is_kept_under_its_hash(engine, tmp_path, data):
    content: Any = data
    if data == "path":
        content = tmp_path / "file"
        content.write_bytes(b"from a file")
    raw = (
        content.read_bytes() if isinstance(content, Path) else content.encode() if isinstance(content, str) else content
    )

    one_step(lambda run: run.artifact("report", content, content_type="text/plain"))
    run = engine.run("one")
    artifact = Artifact.objects.get(run=run)
    assert output(run) == artifact.content_hash == hashlib.sha256(raw).hexdigest()
    assert artifact.size_bytes == len(raw)
    assert Path(default_storage.path(artifact.path)).read_bytes() == raw


def test_same_bytes_are_kept_once_and_other_bytes_beside_them(engine):
    def a(run: Any):
        run.artifact("report", "same")
        if run.attempt == 1:
            raise ValueError
        run.artifact("report", "other")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert Artifact.objects.filter(run=run).count() == 2


def test_half_written_file_of_a_crash_is_written_again(engine):
    content_hash = hashlib.sha256(b"whole").hexdigest()
    path = Path(default_storage.path(f"artifacts/acme/{content_hash[:2]}/{content_hash}"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"who")
    one_step(lambda run: run.artifact("report", b"whole"))
    engine.run("one")
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "a\0", "x" * 300])
def test_artifact_needs_a_name_that_can_be_one(engine, name):
    one_step(lambda run: run.artifact(name, b"x"))
    assert engine.run("one").state == "failed"


@pytest.mark.parametrize("content_type", ["a\0", "x" * 101, ""])
def test_artifact_needs_a_content_type_that_can_be_one(engine, content_type):
    one_step(lambda run: run.artifact("a", b"x", content_type=content_type))
    assert engine.run("one").state == "failed"


def test_artifact_of_an_unknown_class_fails_the_step_with_the_classes_there_are(engine):
    one_step(lambda run: run.artifact("a", b"x", data_class="junk"))
    run = engine.run("one")
    assert run.state == "failed"
    assert "deliverable" in run.error_message

"""`manage.py start`: what is refused is refused in a sentence, and nothing is written half."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from durableops.checkpoints.codec import MAX_BYTES
from runs.models import Checkpoint, Run, RunEvent, Tenant
from tests.workflows_app.workflows import Scripted  # noqa: F401 - importing it declares it

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

REFUSED = {
    b"not json": "not accepted",
    b"\xff\xfe{\x00}\x00": "not UTF-8",
    b"[]": "not a JSON object",
    b'{"words": ["OK"], "more": 1}': "/more",
    b'{"words": "OK"}': "/words",
    b'{"words": ["a\\u0000b"]}': "NUL",
    b'{"words": ["a\\ud800b"]}': "surrogate pair",
    b'{"words": NaN}': "JSON does not have",
    b'{"words": -Infinity}': "JSON does not have",
    b'{"words": 9007199254740993}': r"beyond 2\^53",
    b'{"words": ' + b"[" * 1000 + b"]" * 1000 + b"}": "nested deeper than 64 levels",
    b'{"words": ["' + b"a" * MAX_BYTES + b'"]}': f"over {MAX_BYTES} bytes",
}


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[bytes], str]:
    def write(content: bytes) -> str:
        path = tmp_path / "input.json"
        path.write_bytes(content)
        return str(path)

    return write


def nothing_was_written() -> bool:
    return not (Run.objects.exists() or Checkpoint.objects.exists() or RunEvent.objects.exists())


def test_start_prints_one_json_object_and_the_same_key_starts_one_run(clean_queue, file_of, capsys):
    given = ["start", "scripted", "--input", file_of(b'{"words": ["OK"]}'), "--key", "order 7", "--json"]
    call_command(*given, "--label", "region=north", "--label", "note=a=b")
    first = json.loads(capsys.readouterr().out)
    call_command(*given)
    again = json.loads(capsys.readouterr().out)
    assert (first["created"], again["created"]) == (True, False)
    assert first["run"] == again["run"] == str(Run.objects.get().pk)
    assert Run.objects.get().labels == {"region": "north", "note": "a=b"}


@pytest.mark.parametrize(("content", "sentence"), REFUSED.items(), ids=REFUSED.values())
def test_input_that_cannot_be_one_is_refused_and_nothing_is_written(clean_queue, file_of, content, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("start", "scripted", "--input", file_of(content), "--tenant", "newcomer")
    assert nothing_was_written()
    assert not Tenant.objects.filter(slug="newcomer").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such-workflow"], "there is no workflow 'no-such-workflow'"),
        (["scripted", "--key", "k" * 10_000], "start key has 10000 bytes; at most 255"),
        (["scripted", "--key", "two\nlines"], "start key"),
        (["scripted", "--label", "region"], "is not NAME=VALUE"),
        (["scripted", "--label", "a=b", "--label", "a=c"], "for the second time"),
        (["scripted", "--label", f"a={'v' * 10_000}"], "label 'a' has 10000 bytes"),
        (["scripted", "--tenant", "no/slug"], "is not a slug"),
        (["scripted", "--input", "/does/not/exist"], "cannot be read: No such file"),
        (["scripted", "--input", "/"], "cannot be read: Is a directory"),
    ],
)
def test_start_that_makes_no_sense_is_refused_in_a_sentence(clean_queue, arguments, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("start", *arguments)
    assert nothing_was_written()


def test_endless_standard_input_is_read_no_further_than_the_limit(clean_queue, monkeypatch):
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(CommandError, match=f"over {MAX_BYTES} bytes"):
            call_command("start", "scripted", "--input", "-")


def test_same_key_with_another_input_is_a_conflict_that_changes_nothing(clean_queue, file_of):
    call_command("start", "scripted", "--input", file_of(b'{"words": ["OK"]}'), "--key", "order 7")
    with pytest.raises(CommandError, match="with another input"):
        call_command("start", "scripted", "--input", file_of(b'{"words": []}'), "--key", "order 7")
    assert Run.objects.count() == 1

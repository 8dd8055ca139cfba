"""`manage.py send_event`: what is refused is refused in a sentence, and no event is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from durableops.checkpoints.codec import MAX_BYTES
from runs.models import InboundEvent, Tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_event_sent_twice_under_one_key_is_one_event_and_one_json_object_each(tenant, clean_queue, capsys):
    given = ["send_event", "paid", "--payload", '{"sum": 5}', "--key", "p1", "--tenant", tenant.slug, "--json"]
    call_command(*given)
    first = json.loads(capsys.readouterr().out)
    call_command(*given)
    again = json.loads(capsys.readouterr().out)
    assert first == {"event": InboundEvent.objects.get().pk, "created": True, "answered": 0}
    assert again == {**first, "created": False}


def test_payload_comes_from_a_file_when_it_is_too_long_for_a_command_line(tenant, clean_queue, tmp_path: Path):
    file = tmp_path / "payload.json"
    file.write_text(json.dumps({"text": "a" * 200_000}))
    call_command("send_event", "paid", "--payload-file", str(file), "--tenant", tenant.slug)
    assert len(json.loads(InboundEvent.objects.get().payload)["text"]) == 200_000
    file.write_text(json.dumps({"text": "a" * MAX_BYTES}))
    with pytest.raises(CommandError, match=f"over {MAX_BYTES} bytes"):
        call_command("send_event", "paid", "--payload-file", str(file), "--tenant", tenant.slug)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([""], "event name is empty"),
        (["n" * 10_000], "event name has 10000 bytes"),
        (["paid", "--correlation", "c" * 10_000], "correlation has 10000 bytes"),
        (["paid", "--key", "k" * 10_000], "event key has 10000 bytes"),
        (["paid", "--payload", "[1"], "payload is not accepted"),
        (["paid", "--payload", "[NaN]"], "JSON does not have"),
        (["paid", "--payload", "[9007199254740993]"], r"beyond 2\^53"),
        (["paid", "--payload", '"a\\u0000"'], "NUL"),
        (["paid", "--payload", '"a\\ud800"'], "surrogate pair"),
        (["paid", "--payload", "[" * 1000 + "]" * 1000], "nested deeper than 64 levels"),
        (["paid", "--payload-file", "/does/not/exist"], "cannot be read: No such file"),
    ],
)
def test_event_that_cannot_be_one_is_refused_and_not_kept(tenant, clean_queue, arguments, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("send_event", *arguments, "--tenant", tenant.slug)
    assert not InboundEvent.objects.exists()


@pytest.mark.parametrize("slug", ["mistyped", "nul\x00", "half\ud800"])
def test_mistyped_tenant_is_told_and_not_made(tenant, clean_queue, slug):
    with pytest.raises(CommandError, match="there is no tenant"):
        call_command("send_event", "paid", "--tenant", slug)
    assert list(Tenant.objects.values_list("slug", flat=True)) == [tenant.slug]
    assert not InboundEvent.objects.exists()

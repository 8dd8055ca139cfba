"""Files of runs over the API: the further scope each needs, their bytes, and links without a token."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.test import Client

from runs.models import AuditEntry
from tests import factories
from tests.api.clients import Caller, read

pytestmark = pytest.mark.usefixtures("media", "order")


def test_list_says_what_there_is_and_what_reading_it_needs(acme):
    run = factories.make_run(tenant=acme)
    made = [
        factories.make_artifact(run, name="a.csv", readable_by="members"),
        factories.make_artifact(run, name="b.csv"),
        factories.make_artifact(run, name="rows", data_class="temp_file"),
    ]
    found = read(Caller(acme, ["runs:read", "payloads:read"]).get(f"/runs/{run.pk}/files"))
    assert [(one["id"], one["readable_by"], one["readable"]) for one in found["files"]] == [
        (made[2].pk, "prompts:read", False),
        (made[1].pk, "payloads:read", True),
        (made[0].pk, "runs:read", True),
    ]
    assert (found["more"], found["files"][1]["bytes"], found["files"][1]["sha256"]) == (False, 7, made[1].content_hash)


@pytest.mark.parametrize(("scope", "data_class"), [("payloads:read", "deliverable"), ("prompts:read", "raw_prompt")])
@pytest.mark.parametrize("what", ["content", "link"])
def test_reading_needs_the_scope_the_file_is_for(acme, scope, data_class, what):
    artifact = factories.make_artifact(factories.make_run(tenant=acme), data_class=data_class)
    address = f"/runs/{artifact.run_id}/files/{artifact.pk}/{what}"
    method = "GET" if what == "content" else "POST"
    refused = Caller(acme, ["runs:read"]).send(method, address)
    assert (refused.status_code, read(refused)["needs"]) == (403, scope)
    allowed = Caller(acme, ["runs:read", scope]).send(method, address)
    assert allowed.status_code in (200, 201)


def test_bytes_come_in_pieces_with_their_size_and_hash(acme):
    content = b"0123456789" * 100_000
    artifact = factories.make_artifact(factories.make_run(tenant=acme), readable_by="members", content=content)
    caller = Caller(acme, ["runs:read"])
    answer = caller.get(f"/runs/{artifact.run_id}/files/{artifact.pk}/content")
    assert answer.streaming
    pieces = list(answer.streaming_content)
    assert (len(pieces) > 1, b"".join(pieces)) == (True, content)
    assert (answer["Content-Length"], answer["ETag"]) == ("1000000", f'"{artifact.content_hash}"')
    head = caller.send("HEAD", f"/runs/{artifact.run_id}/files/{artifact.pk}/content")
    assert (head.status_code, head["Content-Length"], b"".join(head.streaming_content)) == (200, "1000000", b"")


@pytest.mark.parametrize("data_class", ["deliverable", "temp_file"])
def test_download_that_broke_off_goes_on_where_it_was(acme, data_class):
    content = bytes(range(256)) * 3000
    artifact = factories.make_artifact(factories.make_run(tenant=acme), data_class=data_class, content=content)
    caller = Caller(acme, ["runs:read", "payloads:read", "prompts:read"])
    address = f"/runs/{artifact.run_id}/files/{artifact.pk}/content"
    begun = caller.get(address)
    assert begun["Accept-Ranges"] == "bytes"
    got = next(iter(begun.streaming_content))
    assert 0 < len(got) < len(content)

    rest = caller.send("GET", address, **{"Range": f"bytes={len(got)}-", "If-Range": begun["ETag"]})
    assert (rest.status_code, rest["Content-Length"]) == (206, str(len(content) - len(got)))
    assert rest["Content-Range"] == f"bytes {len(got)}-{len(content) - 1}/{len(content)}"
    assert hashlib.sha256(got + b"".join(rest.streaming_content)).hexdigest() == artifact.content_hash

    other = caller.send("GET", address, **{"Range": "bytes=5-", "If-Range": '"of another content"'})
    assert (other.status_code, b"".join(other.streaming_content)) == (200, content)
    behind = caller.send("GET", address, Range=f"bytes={len(content)}-")
    assert (behind.status_code, behind["Content-Range"]) == (416, f"bytes */{len(content)}")
    middle = caller.send("GET", address, Range="bytes=262140-262150")
    assert b"".join(middle.streaming_content) == content[262140:262151]
    read_apart = AuditEntry.objects.filter(verb="read_private_file").count()
    assert read_apart == (0 if data_class == "deliverable" else 5), "each request, for a part or behind the end too"


def test_link_needs_no_token_and_says_when_it_ends(acme):
    artifact = factories.make_artifact(factories.make_run(tenant=acme), readable_by="members")
    made = read(Caller(acme, ["runs:read"]).post(f"/runs/{artifact.run_id}/files/{artifact.pk}/link"))
    answer: Any = Client().get(made["url"])
    assert b"".join(answer.streaming_content) == b"content"
    entry = AuditEntry.objects.get(verb="link_file")
    assert entry.actor.startswith("token caller")
    assert entry.after["expires_at"][:16] == made["expires_at"][:16]


def test_file_that_the_storage_lost_is_gone(acme):
    from durableops.artifacts import storage

    artifact = factories.make_artifact(factories.make_run(tenant=acme), readable_by="members")
    storage.remove(artifact.path)
    answer = Caller(acme, ["runs:read"]).get(f"/runs/{artifact.run_id}/files/{artifact.pk}/content")
    assert (answer.status_code, read(answer)["code"]) == (410, "artifact.gone")

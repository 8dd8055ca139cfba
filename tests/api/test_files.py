"""Files of runs over the API: the further scope each needs, their bytes, and links without a token."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client, RequestFactory

from durableops.api.files import _pieces
from durableops.conf import override_conf
from durableops.errors import InputRefused
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


@pytest.fixture
def awaited(acme) -> Any:
    """A run that waits for a CSV of at most ten bytes."""
    run = factories.make_run(state="waiting", tenant=acme)
    return factories.make_wait(run, kind="file", name="contract", facts='{"accept":[".csv"],"max_bytes":10}')


def bring(caller: Caller, wait: Any, body: bytes, name: str = "c.csv", **headers: str) -> Any:
    address = f"/runs/{wait.run_id}/waits/{wait.pk}/file?name={name}"
    return caller.send("PUT", address, body, content_type="text/csv", **headers)


def test_file_that_is_brought_wakes_the_run_once_and_is_kept_with_its_hash(acme, awaited, clean_queue):
    caller = Caller(acme, ["events:send"])
    answer = bring(caller, awaited, b"signed")
    assert (answer.status_code, read(answer)["state"]) == (200, "queued")
    kept = awaited.run.artifacts.get()
    assert (kept.name, kept.size_bytes, kept.content_type) == ("contract", 6, "text/csv")
    assert kept.content_hash == hashlib.sha256(b"signed").hexdigest()
    again = bring(caller, awaited, b"other")
    assert (again.status_code, awaited.run.artifacts.count()) == (409, 1)
    assert AuditEntry.objects.get(verb="bring_file").actor.startswith("token ")


@pytest.mark.parametrize(
    ("body", "name", "status"),
    [(b"x" * 11, "c.csv", 413), (b"ok", "c.txt", 400), (b"", "", 400)],
)
def test_file_that_does_not_fit_is_refused_and_nothing_is_kept(acme, awaited, body, name, status):
    caller = Caller(acme, ["events:send"])
    assert bring(caller, awaited, body, name).status_code == status
    awaited.refresh_from_db()
    assert (awaited.state, awaited.run.artifacts.count()) == ("open", 0)


def test_body_that_ends_before_its_announced_end_is_refused():
    environ = RequestFactory().put("/", b"short")
    request = WSGIRequest({**environ.environ, "wsgi.input": io.BytesIO(b"short"), "CONTENT_LENGTH": "8"})
    with pytest.raises(InputRefused, match="ended 3 bytes before its 8"):
        list(_pieces(request, 8))


def test_large_file_comes_in_pieces_though_other_bodies_are_small(acme, clean_queue, settings):
    run = factories.make_run(state="waiting", tenant=acme)
    wait = factories.make_wait(run, kind="file", name="rows", facts="{}")
    body = b"0123456789abcdef" * 200_000
    with override_conf(payload_max_bytes=1000):
        assert bring(Caller(acme, ["events:send"]), wait, body).status_code == 200
    assert run.artifacts.get().size_bytes == len(body)


def test_link_for_somebody_outside_brings_the_file_without_a_token(acme, awaited):
    made = Caller(acme, ["events:send"]).post(f"/runs/{awaited.run_id}/waits/{awaited.pk}/link")
    assert made.status_code == 201
    page = Client().get(read(made)["url"].removeprefix("http://testserver"))
    assert (page.status_code, b".csv, at most 10 bytes" in page.content) == (200, True)

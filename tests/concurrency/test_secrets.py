"""What other processes see of a secret: nothing in any table of the record, nothing on the broker."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
import redis

from durableops import Retry, Secret, State, step, tool, workflow
from durableops.masking import MASK
from runs.models import Checkpoint, IdempotencyRecord

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Facts(State):
    name: str = ""
    api: Secret = ""


def everything_stored(database_url: str) -> str:
    """Every text in every table of the record."""
    with psycopg.connect(database_url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name LIKE 'runs%'"
        ).fetchall()
        return "\n".join(
            str(connection.execute(f"SELECT coalesce(json_agg(x)::text, '') FROM {name} x").fetchone())
            for (name,) in tables
        )


# C145: redaction at write, and the broker carries no payload.
def test_declared_secrets_are_nowhere_in_the_record_and_never_on_the_broker(engine, database_url, redis_url):
    sent: list[str] = []

    @tool(safety="keyed", name="login", secret=("pin", "session"), retry=AT_ONCE)
    def login(call: Any, *, pin: str) -> dict[str, str]:
        sent.append(pin)
        return {"session": "geheim-session-7", "user": "ann"}

    def a(run: Any):
        run.log("logging in", password="geheim-log-1", headers={"Authorization": "Bearer geheim12345"})
        run.progress(1, 2, "with token=geheim-note-1")
        found = run.call(login, resource="ann", pin="geheim-pin-4711")
        if run.attempt == 1:
            raise ValueError(f"POST https://ann:geheim-url-1@x.example/?token=geheim-url-2 with {found['user']}")
        run.state.name = found["session"][-1] + run.state.api[-1]

    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a", retry=AT_ONCE)(a)}))
    with redis.Redis.from_url(redis_url) as broker, broker.monitor() as monitor:
        run = engine.run("one", {"name": "x", "api": "geheim-state-5"})
        broker.set("end-of-this-test", "1")
        told = []
        while "end-of-this-test" not in (line := str(monitor.next_command()["command"])):
            told.append(line)
        broker.delete("end-of-this-test")
    assert run.state == "succeeded"
    assert sent == ["geheim-pin-4711"]
    assert json.loads(Checkpoint.objects.get(run=run, seq=run.state_seq).state or "{}")["name"] == "75"
    stored = everything_stored(database_url)
    assert "ValueError" in stored
    assert "geheim" not in stored
    assert "geheim" not in "\n".join(told)
    assert IdempotencyRecord.objects.get(tool="login").request_summary == {"pin": MASK}


# C146
def test_credentials_of_a_failed_request_are_not_stored_with_its_error(engine, database_url):
    def a(run: Any):
        import httpx

        hdrs = {"Authorization": "Bearer geheim12345", "X-Api-Key": "geheim67890"}
        request = httpx.Request(
            "POST", "https://ann:geheim-url@hooks.example/T0000/B0000/geheim1234ABCDEFGH?sig=geheim"
        )
        raise httpx.ConnectTimeout(f"{request.url} timed out, sent {hdrs} " + "and so on " * 2_000, request=request)

    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a", retry=AT_ONCE)(a)}))
    run = engine.run("one")
    assert run.state == "failed"
    assert "hooks.example/T0000/B0000/" in run.error_message
    assert len(run.error_message.encode()) < 8_000
    stored = everything_stored(database_url)
    assert "ConnectTimeout" in stored
    # The line of code that failed is shown; what its variables held is not.
    assert not any(secret in stored for secret in ("geheim12345", "geheim67890", "geheim-url", "geheim1234ABCDEFGH"))

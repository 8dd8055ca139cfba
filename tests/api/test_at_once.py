"""Many requests at once against real web processes, and processes that die in the middle (cases C028 and C034)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.conf import settings
from django.db import connection

from runs.models import InboundEvent, Run, Tenant
from tests.api.clients import Caller
from tests.conftest import on_database
from tests.fixtures.engine import holding, until_blocked
from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[2]
THREADS = 50
ORDER = {"workflow": "order", "input": {"customer": "ann"}}

pytestmark = pytest.mark.drill


class Web:
    """`manage.py web` on a free port, in a process group of its own."""

    def __init__(self, environment: dict[str, str], log: Path, *, processes: int) -> None:
        command = [
            sys.executable,
            "manage.py",
            "web",
            "--port",
            "0",
            "--json",
            "--processes",
            str(processes),
            "--threads",
            "8",
        ]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=out, start_new_session=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, log.read_text()
        self.url = json.loads(line)["url"].rstrip("/")
        eventually(self._answers, timeout=30, hoping_for="the web processes to answer")

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v1/openapi.json", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """SIGKILL of every process of it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def environment(django_db_setup: None) -> dict[str, str]:
    """Web processes on the test database, as the application's role where there are two."""
    name = connection.settings_dict["NAME"]
    owner = on_database(settings.DATABASE_OWNER_URL or settings.DATABASE_URL, name)
    separate = bool(settings.DATABASE_APPLICATION_ROLE)
    return {
        **{name: value for name, value in os.environ.items() if name != "DURABLEOPS_DATABASE_ROLE"},
        "DJANGO_SETTINGS_MODULE": "durableops.settings",
        "DURABLEOPS_APPS": "tests.api.served",
        "DATABASE_URL": on_database(settings.DATABASE_URL, name) if separate else owner,
        "DATABASE_OWNER_URL": owner if separate else "",
    }


@pytest.fixture(scope="module")
def web(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    log = tmp_path_factory.mktemp("web") / "web.log"
    found = Web(environment, log, processes=4)
    yield found
    found.kill()
    assert "Traceback" not in log.read_text()


@pytest.fixture
def token(tenant: Tenant) -> str:
    return Caller(tenant).issued.secret


def post(url: str, path: str, token: str, body: Any, key: str) -> httpx.Response:
    headers = {b"Authorization": b"Bearer " + token.encode(), b"Idempotency-Key": key.encode()}
    return httpx.post(f"{url}/api/v1{path}", json=body, headers=headers, timeout=60)


def at_once(web: Web, path: str, token: str, bodies: list[Any], key: str) -> list[httpx.Response]:
    """Every request at the same moment, each on a thread and a connection of its own."""
    ready = threading.Barrier(len(bodies))

    def one(body: Any) -> httpx.Response:
        ready.wait(30)
        return post(web.url, path, token, body, key)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(one, bodies))


def test_fifty_simultaneous_starts_with_one_key_are_one_run(web, token):
    answers = at_once(web, "/runs", token, [ORDER] * THREADS, "K")
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: THREADS - 1}
    run = Run.objects.get()
    assert {answer.json()["id"] for answer in answers} == {str(run.pk)}
    assert Counter(answer.headers.get("Idempotent-Replayed") for answer in answers) == {None: 1, "true": THREADS - 1}
    assert run.events.count() == 1


def test_simultaneous_starts_with_one_key_and_two_inputs_are_one_run_and_conflicts(web, token):
    bodies = [{"workflow": "order", "input": {"customer": name}} for name in ("ann", "bob")] * 10
    answers = at_once(web, "/runs", token, bodies, "K")
    counted = Counter(answer.status_code for answer in answers)
    assert counted == {201: 1, 200: 9, 409: 10}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"run.start_conflict"}
    assert Run.objects.count() == 1


def test_simultaneous_events_with_one_key_are_one_event(web, token):
    answers = at_once(web, "/events", token, [{"name": "paid", "payload": 5}] * 20, "K")
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 19}
    assert InboundEvent.objects.get().duplicates == 19


def test_key_of_a_web_process_that_was_killed_before_its_commit_is_free_again(
    environment, token, tmp_path, second: psycopg.Connection[Any]
):
    web = Web(environment, tmp_path / "web.log", processes=1)
    with ThreadPoolExecutor(1) as pool:
        # The statement that makes the run hangs on its history row: nothing is committed when the process dies.
        with holding(second, "LOCK TABLE runs_event IN EXCLUSIVE MODE"):
            try:
                asked = pool.submit(post, web.url, "/runs", token, ORDER, "K")
                until_blocked()
            finally:
                web.kill()
        with pytest.raises(httpx.TransportError):
            asked.result(30)
    again = Web(environment, tmp_path / "again.log", processes=1)
    try:
        answer = post(again.url, "/runs", token, ORDER, "K")
    finally:
        again.kill()
    assert answer.status_code == 201
    assert Run.objects.count() == 1


def test_five_megabytes_are_refused_by_a_real_server_and_it_goes_on(web, token):
    body = b'{"workflow":"order","input":{"customer":"' + b"x" * 5_000_000 + b'"}}'
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    answer = httpx.post(f"{web.url}/api/v1/runs", content=body, headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (413, "input.too_large")
    chunks = (b"x" * 1000 for _ in range(10))
    assert httpx.post(f"{web.url}/api/v1/runs", content=chunks, headers=headers, timeout=60).status_code == 411
    assert post(web.url, "/runs", token, ORDER, "é").status_code == 201
    assert Run.objects.get().start_key == "é"


def test_head_of_a_real_server_leaves_the_connection_usable(web, token):
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
        head = client.head(f"{web.url}/api/v1/runs")
        assert (head.status_code, head.content) == (200, b"")
        assert client.get(f"{web.url}/api/v1/runs").json() == {"runs": [], "next": None}

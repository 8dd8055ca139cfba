"""The demo as somebody plays it who has just typed `make demo`: sign in, watch, kill, read the receipt, approve."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, expect

from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 500

pytestmark = [pytest.mark.browser, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


class Demo:
    """A demo that plays, and what it has told so far."""

    def __init__(self, process: subprocess.Popen[bytes], told: Path) -> None:
        self.process, self._told = process, told

    @property
    def told(self) -> str:
        return self._told.read_text(encoding="utf-8")

    def find(self, pattern: str) -> str:
        """What it told somewhere, as soon as it has."""
        found = eventually(lambda: re.search(pattern, self.told), timeout=60, hoping_for=pattern)
        assert found is not None
        return found[1]


@pytest.fixture
def demo(process_environment: dict[str, str], clean_queue: Any, tmp_path: Path) -> Iterator[Demo]:
    csv, told = tmp_path / "given.csv", tmp_path / "told"
    csv.write_text("id,name\n" + "".join(f"n{n},row {n}\n" for n in range(ROWS)), encoding="utf-8")
    environment = process_environment | {"CSV": str(csv), "DEMO_FOLDER": str(tmp_path / "demo"), "ONCE": ""}
    with told.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo"], env=environment, cwd=CHECKOUT, stdout=out, stderr=out
        )
    yield Demo(process, told)
    process.terminate()
    process.wait(30)


def test_demo_is_watched_killed_and_approved_in_the_console_and_leaves_nothing_behind(demo: Demo, chrome: Browser):
    console, name, password = demo.find(r"Console\s+(\S+)"), *re.split(r"\s+/\s+", demo.find(r"Sign in\s+(.+)"))
    page = chrome.new_context(base_url=console).new_page()
    page.set_default_timeout(30_000)
    page.goto("/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password.strip())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="What you are looking at")).to_be_visible()

    page.get_by_role("link", name="Settle a doubt").click()
    page.get_by_role("link", name="ledger.post · invoice 2026-102 of October").click()
    expect(page.get_by_role("link", name="It happened…")).to_be_visible()

    page.get_by_role("link", name="Kill its worker").click()
    holder = page.locator("tr", has=page.get_by_role("link", name=re.compile("batch-import"))).first
    holder.get_by_role("button", name=re.compile("Kill worker")).click()
    expect(page.locator("#notices")).to_contain_text("was killed (SIGKILL)")

    page.get_by_role("link", name="Watch the import").click()
    page.locator(".run-row .mono a").first.click()
    expect(page.locator(".told")).to_contain_text("worker lost", timeout=30_000)
    page.get_by_role("button", name="Hide this").click()
    expect(page.locator(".about")).to_have_count(0)

    expect(page.get_by_role("link", name="Approve…")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Approve…").click()
    page.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".title .chip")).to_have_text("succeeded")
    page.context.close()

    demo.find(r"(every repeat has its reason, no ticket is there twice, none is missing)")
    demo.find(r"(Ctrl-C stops it)")
    family = psutil.Process(demo.process.pid).children(recursive=True)
    assert len(family) >= 7  # the desk, the ledger, upkeep, two workers with a child each, the console
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(30) == 0
    assert psutil.wait_procs(family, timeout=10)[1] == []

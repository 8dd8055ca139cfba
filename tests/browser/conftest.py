"""A real browser, a served console, and people signed in to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from runs.models import Membership
from tests import browser as chromium_finder
from tests.factories import make_person

PATIENCE_MILLISECONDS = 60_000
"""How long a page may take to get there: two processes of the suite and what they start share the machine."""
expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest.fixture(scope="package")  # not longer: its loop would go on running in the thread of every later test
def chrome(chromium: str) -> Iterator[Browser]:
    # Playwright's loop runs in this thread, which makes Django think that it is asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=chromium, args=chromium_finder.arguments())
        yield found
        found.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def visit(chrome: Browser, live_server) -> Iterator[Callable[..., Page]]:
    """Open an address as somebody of the cast; errors of the page fail the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_page(path: str, *, who: str = "admin", dark: bool = False, width: int = 1280) -> Page:
        person = make_person(who)
        Membership.objects.filter(user=person).update(sees_payloads=True)
        client = Client()  # one for each visit: signing somebody else in would end the session of an earlier one
        client.force_login(person)
        context = chrome.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", base_url=live_server.url
        )
        context.add_cookies(
            [{"name": "sessionid", "value": client.cookies[settings.SESSION_COOKIE_NAME].value, "url": live_server.url}]
        )
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []

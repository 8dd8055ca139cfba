"""What another system sees of the runs: the JSON API, over HTTP, with a token that ends with the drill."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx

from durableops import tokens
from durableops.access import Permission
from durableops.upkeep.drills.company import ACTOR, tenant
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until

ANSWERS_WITHIN_SECONDS = 30.0
SCOPES = (Permission.VIEW,)


class Api:
    """The JSON API as another system uses it: with a token, over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=30.0
        )

    def run(self, run_id: UUID) -> dict[str, Any]:
        """One run."""
        return self._get(f"/runs/{run_id}")

    def timeline(self, run_id: UUID) -> list[dict[str, Any]]:
        """What happened to it."""
        return list(self._rows(f"/runs/{run_id}/timeline", "happenings"))

    def effects(self, run_id: UUID) -> list[dict[str, Any]]:
        """What it did to the world."""
        return list(self._rows(f"/runs/{run_id}/effects", "effects"))

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            return self._http.get("/openapi.json").is_success
        except httpx.TransportError:
            return False

    def _rows(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        after: int | None = 0
        while after is not None:
            page = self._get(path, after=after, limit=500)
            yield from page[name]
            after = page["next"]

    def _get(self, path: str, **params: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.get(path, params=params).raise_for_status().json()
        return answer


@contextmanager
def open_api(stage: Stage) -> Iterator[Api]:
    """Serve the API and come to it with a token of the drill's tenant."""
    command = [sys.executable, str(stage.cast.folder / "manage.py"), "web", "--port", "0", "--json"]
    web = stage.cast.start("web", command, answers=True)
    issued = tokens.issue(
        f"drill {web.pid}", tenant=tenant(), scopes=[scope.value for scope in SCOPES],
        lifetime=timedelta(hours=1), actor=ACTOR,
    )  # fmt: skip
    try:
        api = Api(web.answer["url"], issued.secret)
        until(api.answers, wanted="an answer of the API", within=ANSWERS_WITHIN_SECONDS)
        yield api
    finally:
        tokens.revoke(issued.token.prefix, tenant=tenant(), actor=ACTOR, reason="the drill is over")

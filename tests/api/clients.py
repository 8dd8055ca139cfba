"""A caller of the API for tests: its token, and answers that are read as JSON. Nothing here asserts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from django.test import Client

from durableops import tokens
from durableops.access import SCOPES
from runs.models import Tenant

PREFIX = "/api/v1"
EVERY_SCOPE = tuple(scope.value for scope in SCOPES)


class Caller:
    """Another system, with one token."""

    def __init__(self, tenant: Tenant, scopes: Iterable[str] = EVERY_SCOPE, *, name: str = "caller") -> None:
        scopes = list(scopes)
        self.tenant = tenant
        self.issued = tokens.issue(
            f"{name} {len(scopes)} {tenant.api_tokens.count()}", tenant=tenant, scopes=scopes,
            lifetime=timedelta(days=1), actor="tests",
        )  # fmt: skip
        self.http = Client(raise_request_exception=False)

    def send(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """Send a request; a body that is bytes goes as it is."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {self.issued.secret}", **headers}
        if key is not None:
            # As a server hands it over: the bytes of the header read as latin-1.
            given["Idempotency-Key"] = key.encode().decode("latin-1")
        content_type = given.pop("content_type", "application/json")
        return self.http.generic(method, f"{PREFIX}{path}", raw, content_type=content_type, headers=given)

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def post(self, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        return self.send("POST", path, body, key=key, **headers)

    def start(self, given: Any = None, *, workflow: str = "order", key: str | None = None, **more: Any) -> Any:
        """Start a run of the workflow of these tests."""
        return self.post("/runs", {"workflow": workflow, "input": given or {"customer": "ann"}, **more}, key=key)


def read(response: HttpResponse) -> Any:
    """The answer's JSON, read strictly."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(response.content, parse_constant=refuse)

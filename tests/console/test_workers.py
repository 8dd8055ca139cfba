"""The Workers page: what each process holds, and what that costs it."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.factories import make_worker

pytestmark = pytest.mark.django_db


def test_a_worker_shows_its_places_memory_connections_loop_and_what_it_stopped_by_force(signed_in):
    make_worker(
        concurrency=16,
        in_hand=3,
        memory_bytes=98 * 2**20,
        connections=5,
        loop_lag_seconds=1.5,
        forced_stops=2,
        isolated=True,
    )

    text = " ".join(signed_in("viewer").get(reverse("console:workers")).content.decode().split())

    for cell in ("3 of 16", "isolated", "98.0", "5 connections", "loop lag 1.5 s", "2 stopped by force"):
        assert cell in text

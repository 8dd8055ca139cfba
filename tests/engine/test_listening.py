"""The worker's child: what ends it, and what becomes of the run it had claimed."""

from __future__ import annotations

import signal
import sys
from types import SimpleNamespace

import pytest

from durableops.engine import in_hand, listening
from durableops.engine.hand import Stopping
from durableops.engine.listening import Listener
from runs.ids import uuid7


def test_an_error_of_the_engine_itself_ends_the_worker_instead_of_leaving_its_run_behind(
    monkeypatch: pytest.MonkeyPatch, clean_queue
):
    def fail(*_: object, **__: object):
        raise TypeError("the engine is broken")

    claims = [[SimpleNamespace(run_id=uuid7(), tenant_id=1, weight=1)]]

    def claim(*_: object, **__: object):
        found = claims.pop() if claims else sys.exit("the worker went on and left its run behind")
        return SimpleNamespace(runs=found, gates=False)

    monkeypatch.setattr(in_hand, "take_next", claim)
    monkeypatch.setattr(listening, "advance", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    listener = Listener(worker_id=uuid7(), stopping=Stopping())

    with pytest.raises(TypeError, match="the engine is broken"):
        listening.run_listener(listener)

    assert listener.stopping.since is not None

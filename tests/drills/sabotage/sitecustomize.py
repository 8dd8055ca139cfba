"""Takes one production guard out of every process that finds this file on its PYTHONPATH. For tests of the drills only.

The interpreter imports it on start, before there is anything to change; so each guard is taken out when its module is
first imported. SABOTAGE names it. A guard that is not found where it was is an error: a drill must not pass for that.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import re
import secrets
import sys

FENCE = "r.fence = %(fence)s AND "


def without_fence(fenced):
    """The fenced write no longer compares the fence."""
    build = fenced._head

    def head(**shape):
        text = build(**shape)
        assert FENCE in text, text
        return text.replace(FENCE, "")

    fenced._head = head
    # A second guard: it often tells a worker that wakes before that worker's late write is sent.
    sys.meta_path.insert(0, Saboteur("durableops.engine.attendant", without_attention))


def without_attention(attendant):
    """The attendant no longer tells a run in hand what the record says of it."""
    assert attendant._note
    attendant._note = lambda hand, row: None


def without_slot(parts):
    """Intents no longer ask whether their slot is taken. The constraint behind it is dropped by the test."""
    before = parts.PARTS["intents"]
    parts.PARTS["intents"] = re.sub(r"ON CONFLICT \(slot\).*?(?=RETURNING)", "", before, flags=re.DOTALL)
    assert parts.PARTS["intents"] != before


def without_intent(calls):
    """A call goes out without an intent; what became of it is recorded afterwards."""

    def intend(batch, **_):
        for n, prepared in batch.fresh.items():
            batch.pending[n] = calls.Pending(prepared=prepared, effect_id=None, window_closes=None)
        batch.fresh = {}
        yield from ()

    assert calls._intend
    calls._intend = intend


def without_key(calling):
    """A call goes out with another key each time."""
    before = calling.LiveCall.__init__

    def begin(call, *args, **more):
        before(call, *args, **more)
        call.key = secrets.token_hex(24)

    calling.LiveCall.__init__ = begin


def without_reason(sending):
    """A call that goes out again does not say so."""
    before = sending.Hand.event

    def event(hand, name, **more):
        if name != "effects_repeated":
            before(hand, name, **more)

    sending.Hand.event = event


def without_doubt(doubting):
    """A legacy call that was on the wire when its worker died is taken for one that did not happen."""
    for was, instead in (
        ("ELSE 'in_doubt' END", "ELSE 'withdrawn' END, holds_system = false"),
        ("completed_at = CASE WHEN e.state = 'queued' THEN now() END", "completed_at = now()"),
    ):
        assert was in doubting._LEAVE, doubting._LEAVE
        doubting._LEAVE = doubting._LEAVE.replace(was, instead)


def without_removal(storage):
    """Files stay where they are when they are to be removed."""
    assert storage.remove
    storage.remove = lambda path: None


def without_comparison(resuming):
    """What was recorded is read by whatever code there is."""
    assert resuming.decide
    resuming.decide = lambda database, claimed: (resuming.definition_for(claimed), None)


def without_cap(slots):
    """A claim no longer sees that a tenant has a cap."""
    before = slots.room_of_tenant

    def room(tenant, ending):
        text = before(tenant, ending)
        changed = re.sub(r"CASE WHEN.*END AS room", "NULL::bigint AS room", text, flags=re.DOTALL)
        assert changed != text
        return changed

    slots.room_of_tenant = room


GUARDS = {
    "cap": ("runs.slots", without_cap),
    "fence": ("runs.fenced", without_fence),
    "slot": ("runs.parts", without_slot),
    "intent": ("durableops.engine.calls", without_intent),
    "key": ("durableops.engine.calling", without_key),
    "doubt": ("runs.doubting", without_doubt),
    "removal": ("durableops.artifacts.storage", without_removal),
    "comparison": ("durableops.engine.resuming", without_comparison),
    "reason": ("durableops.engine.sending", without_reason),
}


class Saboteur(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the real loader load the module, then changes it."""

    def __init__(self, name, take_out):
        self.name, self.take_out = name, take_out
        self.spec = None

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        self.spec = importlib.util.find_spec(fullname)
        assert self.spec
        return importlib.util.spec_from_loader(fullname, self, origin=self.spec.origin)

    def create_module(self, spec):
        assert self.spec
        return importlib.util.module_from_spec(self.spec)

    def exec_module(self, module):
        assert self.spec
        assert self.spec.loader
        self.spec.loader.exec_module(module)
        self.take_out(module)


if chosen := os.environ.get("SABOTAGE"):
    sys.meta_path.insert(0, Saboteur(*GUARDS[chosen]))

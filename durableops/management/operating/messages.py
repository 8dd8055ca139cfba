"""Verbs on messages of the outbox: listing those nobody took and those that wait, and deciding about one."""

from __future__ import annotations

from collections.abc import Callable

from durableops.engine import message_view, messages
from durableops.engine.acting import Done
from durableops.management.operating.asked import Asked, Told, Verb, listed

A_MESSAGE = "a message; `operate messages` and GET /messages show it"


def _messages(asked: Asked) -> Told:
    asked.nothing_named()
    limit, state = asked.limit, asked.options["state"] or "poisoned"
    read = message_view.waiting if state == "pending" else message_view.poisoned
    rows = read(tenant=asked.tenant, limit=limit + 1)
    facts = [
        {
            "id": one.id, "run": str(one.run_id), "destination": one.destination, "state": one.state,
            "tool": one.tool, "resource": one.resource, "attempts": one.attempts, "sent": one.sendings,
            "due_at": one.due_at.isoformat() if one.due_at else None, "in_lane": one.depth,
            "holds_lane": one.holds_lane, "error": one.error_message,
        }
        for one in rows[:limit]
    ]  # fmt: skip
    lines = [
        f"{one.id}  {one.state}  to {one.destination}  {one.tool} {one.resource} of run {one.run_id}"
        f"  tried {one.attempts} times, {one.depth} in its lane{f'  {one.error_message}' if one.error_message else ''}"
        for one in rows[:limit]
    ]
    return listed(asked, "messages", facts, lines, more=len(rows) > limit)


def _decided(verb: Callable[..., Done]) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        number = asked.number(A_MESSAGE)
        done = verb(number, tenant=asked.tenant, **asked.said)
        facts = {"verb": asked.verb, "message_id": number, "run": str(done.run_id), "state": done.state}
        return Told(message=f"message {number} {done.message}", facts=facts)

    return do


VERBS: dict[str, Verb] = {
    "messages": Verb(do=_messages, about="nothing: lists messages (--state poisoned or pending)"),
    "retry-message": Verb(do=_decided(messages.retry_message), about="a message: it is tried now"),
    "skip-message": Verb(do=_decided(messages.skip_message), about="a message: it is given up"),
    "redeliver": Verb(do=_decided(messages.redeliver), about="a message that was delivered or skipped"),
}

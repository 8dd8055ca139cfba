"""What breaks each check of the outbox; `test_invariants` does it to a record with everything in it."""

from __future__ import annotations

from typing import Any

from durableops import Refused, Run, State, step, tool, workflow
from durableops.engine.relaying.relay import Relay


class Facts(State):
    n: int = 0


def post_and_relay(engine: Any) -> None:
    """Messages that were delivered, one after a repeat; one that is poison and holds its lane; one that waits."""
    answers = iter([TimeoutError("no answer")])

    @tool(safety="outbox")
    def tell(call):
        if call.resource == "refused":
            raise Refused("no such address")
        for error in answers:
            raise error

    @workflow(name="poster", version=1, state=Facts)
    class Poster:
        @step
        def a(run: Run):
            run.call_many(tell, [{"resource": name} for name in ("slow", "quick", "refused", "behind")])

    engine.run("poster")
    relay = Relay(concurrency=1, name="relay of invariants")
    relay.begin()
    relay.drain()
    from tests.engine.relaying.conftest import let_lanes_be_due

    let_lanes_be_due()
    relay.drain()
    relay.stop()
    relay.end()


_LANE = "(SELECT id FROM runs_outbox_lane)"
_QUICK = "(SELECT m.id FROM runs_outbox_message m JOIN runs_effect e ON e.id = m.effect_id WHERE e.resource = 'quick')"

BREAKS: list[tuple[str, str]] = [
    ("lane_counts_its_messages", "UPDATE runs_outbox_lane SET depth = depth + 1"),
    ("lane_counts_its_messages", "UPDATE runs_outbox_lane SET depth = 0, held_by = NULL"),
    ("lane_is_held_by_a_poisoned_message_of_its_own", f"UPDATE runs_outbox_lane SET held_by = {_QUICK}"),
    (
        "claimed_lane_has_a_living_relay",
        "UPDATE runs_outbox_lane SET relay_id = gen_random_uuid(), claimed_at = now()",
    ),
    (
        "claimed_lane_has_a_living_relay",
        """
            UPDATE runs_worker SET ended_at = now() - interval '1 hour' WHERE kind = 'relay';
            UPDATE runs_outbox_lane SET claimed_at = now(), relay_id = (SELECT id FROM runs_worker
                WHERE kind = 'relay')""",
    ),
    (
        "message_that_is_due_has_a_living_relay_that_knows_its_destination",
        "UPDATE runs_outbox_lane SET held_by = NULL, due_at = now() - interval '1 hour'",
    ),
    (
        "message_that_is_due_has_a_living_relay_that_knows_its_destination",
        """
            UPDATE runs_worker SET ended_at = NULL, destinations = '["other"]' WHERE kind = 'relay';
            UPDATE runs_outbox_lane SET held_by = NULL, due_at = now() - interval '1 hour'""",
    ),
    ("effect_follows_its_messages", f"UPDATE runs_outbox_message SET state = 'pending' WHERE id = {_QUICK}"),
    (
        "effect_follows_its_messages",
        "UPDATE runs_effect SET state = 'queued', completed_at = NULL WHERE resource = 'quick'",
    ),
    (
        "delivered_message_was_sent_and_its_repeats_name_their_reason",
        f"UPDATE runs_outbox_message SET sendings = 0 WHERE id = {_QUICK}",
    ),
    (
        "delivered_message_was_sent_and_its_repeats_name_their_reason",
        f"UPDATE runs_outbox_message SET sendings = 2 WHERE id = {_QUICK}",
    ),
]

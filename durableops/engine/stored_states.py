"""What of its state a step or page commits, and how much of it a run may store in all.

A state that changes is stored with the checkpoint. One that grows with the work done would be stored again and again:
n pages of it cost the square of n. So the sum is kept on the run, told when it becomes large, and has an end.
"""

from __future__ import annotations

from durableops.conf import get_conf
from durableops.engine.hand import Hand
from durableops.errors import PayloadRefused

WARNED_OF = 0.25
"""The share of the limit from which on the run says that it stores much."""
ADVICE = (
    "A state that grows with the work done is stored anew with each checkpoint: keep what grows in run.artifact or in "
    "your own tables, and its place in the state."
)


def to_store(hand: Hand, state_json: str) -> str | None:
    """The state as the next checkpoint holds it: None when it is the one on record.

    Raises PayloadRefused when the states of all its checkpoints would together take more than a run may store.
    """
    if state_json == hand.state_json:
        return None
    limit, size = get_conf().run_state_max_bytes, len(state_json.encode())
    before, after = hand.state_bytes, hand.state_bytes + size
    if after > limit:
        raise PayloadRefused(
            f"the states of all checkpoints of run {hand.run_id} would take {after} bytes, the last one of them {size};"
            f" at most {limit} are stored (DURABLEOPS_RUN_STATE_MAX_BYTES). {ADVICE}"
        )
    if before <= limit * WARNED_OF < after:
        hand.event(
            "state_grows",
            reason=f"the states of its checkpoints take {after} bytes by now; a run may store {limit}. {ADVICE}",
            data={"bytes": after, "limit": limit, "state": size},
        )
    return state_json

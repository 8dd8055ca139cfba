"""What the record says to calls: an answer, that they go out again, that somebody else is at it, or nothing yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from durableops.clock import uptime
from durableops.effects.idempotency import Prepared
from durableops.engine import results as recorded
from durableops.engine import sharing
from durableops.engine.hand import Hand
from durableops.engine.known import KnownEffect
from durableops.engine.large_results import Apart
from durableops.engine.probing import Doubted
from durableops.engine.sending import Pending, in_doubt, window_closed
from durableops.engine.sharing import Shared
from durableops.errors import DuplicateName, EffectConflict, EffectGivenUp, PayloadRefused, Refused


@dataclass(kw_only=True)
class Batch:
    """Calls that were asked for together, by their number, and how far each is."""

    hand: Hand
    results: list[Any]
    """What each returns, an error included."""
    fresh: dict[int, Prepared] = field(default_factory=dict)
    """Those that nothing is on record of, or that were taken back: their intent is to be committed."""
    pending: dict[int, Pending] = field(default_factory=dict)
    """Those on their way to an outcome."""
    shared: Shared = field(default_factory=dict)
    """Those that another run of the tenant is at."""
    doubted: Doubted = field(default_factory=dict)
    """Those that nobody but a person or a probe can tell about."""

    def take(self, n: int, prepared: Prepared, known: KnownEffect | None, *, because: str = "") -> None:
        """Note what the record says to one call. `because` is why it would go out again, if not for the last resume."""
        if known is None or (known.state == "withdrawn" and known.request_hash == prepared.request_hash):
            self.fresh[n] = prepared
        elif known.request_hash != prepared.request_hash:
            self.results[n] = conflict(self.hand, prepared, known)
        elif self._was_on_an_earlier_page(prepared, known):
            self.results[n] = DuplicateName(
                f"{prepared.tool.name} was called for {prepared.resource!r} on an earlier page; give this one its own "
                "key.",
                effect=known.id,
            )
        elif known.state in ("succeeded", "refused", "given_up"):
            self.results[n] = self._outcome(prepared, known)
        elif sharing.is_anothers(self.hand, known):
            self.shared[n] = (prepared, known)
        elif known.state == "queued":
            self.pending[n] = Pending(prepared=prepared, effect_id=known.id, window_closes=None)
        else:
            self._again(n, prepared, known, because or self.hand.claimed.wake_cause or "interrupted")

    def _was_on_an_earlier_page(self, prepared: Prepared, known: KnownEffect) -> bool:
        """A page's calls belong to that page; what belongs to the tenant belongs to no page."""
        # A run that went back may as well have done it on this very page.
        if prepared.tool.safety == "read" or prepared.tool.scope == "tenant" or self.hand.went_back:
            return False
        return self.hand.in_page and known.id <= self.hand.effects_through

    def _outcome(self, prepared: Prepared, known: KnownEffect) -> Any:
        if known.state == "given_up":
            return EffectGivenUp(
                f"{prepared.tool.name} for {prepared.resource!r} was given up (effect {known.id}): "
                f"{known.error_message}",
                effect=known.id,
            )
        if known.state == "succeeded" and known.error_class:
            return PayloadRefused(known.error_message)
        self.hand.reuse(known.id)
        if known.state == "refused":
            return Refused(known.error_message)
        if known.result is None:
            return Apart(slot=prepared.slot, tool=prepared.tool, resource=prepared.resource)
        return recorded.read(prepared.tool, known.result)

    def _again(self, n: int, prepared: Prepared, known: KnownEffect, because: str) -> None:
        """It was sent, or may have been, and nothing came of it that anybody knows."""
        forgotten = known.window_closes is not None and uptime() > known.window_closes
        if known.state == "in_doubt" and (prepared.tool.safety != "keyed" or forgotten):
            self.results[n] = in_doubt(prepared, known.id)
            self.doubted[n] = (prepared, known)
        elif prepared.tool.safety == "legacy":
            # Whoever left the step said so already; this is the last of the nets below it.
            self.hand.doubt(known.id, cause="interrupted", why="its sender left before it had an answer.")
            self.results[n] = in_doubt(prepared, known.id)
        elif forgotten:
            self.results[n] = window_closed(self.hand, prepared, known.id)
        else:
            self.pending[n] = self.hand.under_way[known.id] = Pending(
                prepared=prepared,
                effect_id=known.id,
                window_closes=known.window_closes,
                attempt=known.attempts,
                maybe_sent=True,
                repeat_because=because,
            )
            if prepared.tool.scope == "tenant":
                self.hand.shared.add(known.id)


def conflict(hand: Hand, prepared: Prepared, known: KnownEffect) -> EffectConflict:
    """Tell of a slot that holds another request, and return the error that says so."""
    tell_conflict(hand, prepared, known.id, recorded=known.request_hash)
    return EffectConflict(
        f"{prepared.tool.name} for {prepared.resource!r} was asked with another request before (effect {known.id}). "
        "Nothing was sent. Give a changed request a key of its own, or keep it the same.",
        effect=known.id,
    )


def tell_conflict(hand: Hand, prepared: Prepared, effect_id: int, **more: str) -> None:
    """Put a conflict on the timeline."""
    hand.event(
        "effect_conflict",
        reason=f"{prepared.tool.name} for {prepared.resource!r}: the slot holds another request; nothing was sent.",
        data={"effect": effect_id, "tool": prepared.tool.name, "asked": prepared.request_hash, **more},
    )

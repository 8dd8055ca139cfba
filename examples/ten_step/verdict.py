"""What is made of a played `ten-step` drill: a check of each promise, figures, a summary that explains each resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from durableops.upkeep.drills import deliveries, facts
from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.facts import Interruption
from durableops.upkeep.drills.guards import check_guards
from durableops.upkeep.drills.promises import check_invariants
from examples.company.crowd import Crowd
from examples.demo.account import Account, compare
from examples.demo.desk_client import DeskClient
from examples.demo.narrate import problems
from examples.demo.record import keys_of_other_runs, records_of, totals
from examples.ten_step.workflows import APPROVAL, EFFECTS_AVOIDED_BY_WAITS, TICKETS, TenStep
from runs.models import IdempotencyRecord, Run, RunEvent

WAITS = 2
"""The approval and the event: each is a resume too, and none of them a loss."""
KILLS = 3


@dataclass(kw_only=True)
class Played:
    """What was done, as far as it came."""

    order: str = ""
    run_id: UUID | None = None
    kills: list[Interruption] = field(default_factory=list)
    freeze: Interruption | None = None


def judge(played: Played, checks: Checks, desk: DeskClient | None, crowd: Crowd | None) -> dict[str, Any]:
    """Check everything and return the figures of the report."""
    if played.run_id is None or desk is None or crowd is None:
        return {"summary": "The run was never started."}
    run = Run.objects.get(pk=played.run_id)
    _check_run(run, checks)
    _check_interruptions(played, run, checks)
    account = _account(run, desk)
    _check_effects(run, account, checks)
    skipped = facts.approvals_skipped(run.pk, wanted={APPROVAL: "propose"})
    checks.add(
        "approval_not_skipped", not skipped, "; ".join(skipped) or f"{APPROVAL!r} was given, with its audit entry"
    )
    back = facts.cursor_regressions(run.pk)
    checks.equal("positions_never_go_back", back, 0, "regressions of checkpoint numbers and cursors")
    company = crowd.judge(checks, desk)
    check_guards(checks, run.pk)
    check_invariants(checks, newest_runs=1 + len(crowd.runs))
    recoveries = [facts.recovery_seconds(run.pk, kill) for kill in played.kills]
    return {
        "run": str(run.pk),
        "resumes": run.resumes,
        "recovery_seconds": facts.spread([seconds for seconds in recoveries if seconds is not None]),
        "stopped_worker_replaced_seconds": _replaced_after(run, played),
        "duplicate_effects": account.duplicate_tickets,
        "effects_avoided": run.effects_avoided,
        "effects_repeated": sum(receipt.repeated_effects for receipt in facts.receipts(run.pk)),
        "requests": account.requests,
        "repeated_keys": account.repeated_keys,
        "unexplained_repeats": len(account.unexplained_repeats),
        "cursor_regressions": back,
        "approvals_skipped": len(skipped),
        "late_results_rejected": facts.late_results_rejected(run.pk),
        "company": company,
        "summary": _summary(run, account),
    }


def _check_run(run: Run, checks: Checks) -> None:
    told = f"{run.state}" + (f": {run.error_message}" if run.error_message else "")
    checks.add("run_succeeded", run.state == "succeeded", told)
    planned = [step.id for step in TenStep.steps]  # type: ignore[attr-defined]  # the decorator made it a definition
    committed = facts.steps_committed(run.pk)
    checks.equal("every_step_committed_once", committed, planned, "in the order of the plan")
    state, _, _ = totals(run.pk)
    checks.equal("every_step_counted_once", state["steps_done"], len(planned), "steps that ran on committed state")
    fences = facts.claims(run.pk)
    checks.add(
        "bell_twice_is_one_claim",
        fences == sorted(set(fences)) and not deliveries.bells_waiting(),
        f"fences in order of their claims: {fences}; every bell was answered",
    )


def _check_interruptions(played: Played, run: Run, checks: Checks) -> None:
    lost = [receipt for receipt in facts.receipts(run.pk) if receipt.lost_at is not None]
    struck = [*played.kills, *([played.freeze] if played.freeze else [])]
    checks.equal("every_kill_was_made", len(played.kills), KILLS, "workers killed while they held the run")
    checks.equal(
        "every_loss_has_its_receipt",
        [receipt.step_id for receipt in lost],
        [strike.step for strike in sorted(struck, key=lambda strike: strike.at)],
        "steps at which a receipt names a lost worker",
    )
    checks.equal("every_resume_is_explained", run.resumes, len(struck) + WAITS, "losses and waits")
    refused = facts.refused_late(run.pk, played.freeze) if played.freeze else 0
    checks.add(
        "late_result_refused", refused, f"the worker that was stopped past its lease was refused {refused} times"
    )
    foreign = facts.foreign_writes(run.pk)
    checks.add(
        "one_writer", not foreign, "; ".join(foreign) or "every write under a fence is of the worker that claimed it"
    )


def _check_effects(run: Run, account: Account, checks: Checks) -> None:
    checks.add(
        "every_repeat_is_explained",
        account.is_clean,
        ", ".join(problems(account))
        or f"{account.repeated_keys} keys were seen twice, each for a reason on our record",
    )
    checks.equal(
        "no_duplicate_effects", (account.tickets, account.duplicate_tickets), (TICKETS, 0), "tickets, duplicates"
    )
    checks.equal(
        "effects_avoided_as_planned", run.effects_avoided, EFFECTS_AVOIDED_BY_WAITS, "calls answered from the record"
    )
    reserved = IdempotencyRecord.objects.filter(run=run, step_id="reserve").first()
    timeouts = RunEvent.objects.filter(run=run, event="call_timeout", step_id="reserve").count()
    seen = (timeouts, reserved.state if reserved else "", reserved.attempts if reserved else 0)
    checks.equal("timeout_then_success", seen, (1, "succeeded", 2), "timeouts on the timeline, outcome, sendings")


def _account(run: Run, desk: DeskClient) -> Account:
    """The desk's log against our record."""
    desk.forget_faults()
    requests, tickets = desk.requests(), desk.tickets()
    others = keys_of_other_runs(run.pk, sorted({request.key for request in requests}))
    return compare(requests=requests, tickets=tickets, records=records_of(run.pk), others=others)


def _replaced_after(run: Run, played: Played) -> float | None:
    seconds = facts.recovery_seconds(run.pk, played.freeze) if played.freeze else None
    return None if seconds is None else round(seconds, 3)


def _summary(run: Run, account: Account) -> str:
    """What happened, in words."""
    return "\n".join(
        [
            f"Run {run.pk} is {run.state} after {run.resumes} resumes:",
            *(f"  {facts.tell(receipt)}" for receipt in facts.receipts(run.pk)),
            f"The desk saw {account.requests} requests and holds {account.tickets} tickets.",
            *(f"  {count} repeated after: {cause}" for cause, count in sorted(account.explained.items())),
            f"{run.effects_avoided} calls were answered from the record, as planned ({EFFECTS_AVOIDED_BY_WAITS}).",
        ]
    )

"""Every error this product raises on purpose; nothing here decides when to raise one.

The tree::

    DurableOpsError
      DefinitionError             a workflow, step, tool, state or migration is declared wrongly
      InputRefused                something from outside is not acceptable (400)
        InputTooLarge             ... because of its size (413)
      PayloadRefused              a result or state cannot be stored: not JSON, or too large
      TokenRefused                an API token is missing, unknown, revoked or past its end (401)
      NotPermitted                whoever asks lacks the permission (403)
      RunNotFound                 404
      WorkflowNotFound            404
      TokenNotFound               404
      MessageNotFound             404
      EndpointNotFound            404
      BulkNotFound                404
      ArtifactNotFound            404
      PromptNotFound              404
      HoldNotFound                404
      ArtifactGone                the file was removed: by retention, or its link has ended (410)
      ArtifactDamaged             a file does not hold what was written
      SealBroken                  what is encrypted cannot be read: it was changed, or its key is missing
      CompensationNotFound        404
      TransitionRefused           the run's state does not allow this event (409)
        PlanChanged               what a verb would do is not what was shown any more (409)
          PlanWanted              ... or was never shown, and would send something again (409)
      BulkRefused                 the bulk action's state does not allow this (409)
        BulkPlanChanged           ... or it would do other things than were shown (409)
      StartConflict               same start key, other input (409)
      EventConflict               same event id, other content (409)
      QuotaConflict               somebody else changed the quota meanwhile (409)
      QuotaUnsafe                 a cap that some living worker would not keep to (409)
      RateLimited                 more than the quota allows in a minute; try again later (429)
      PlanRefused                 a plan that a run makes for itself is none of its workflow's
      StaleFence                  a newer claim owns the run (409)
      CursorRegression            a cursor or checkpoint number would go backwards
      DuplicateName               one name and key used twice in one entry of a step
      CompatibilityError          recorded bytes cannot be read by today's code
      MigrationRefused            a run cannot be migrated as it stands (409)
      ResultGone                  a recorded result was removed by retention
      EffectConflict              same slot, other request: unsent and shown
      EffectInDoubt               an effect may or may not have happened
      EffectGivenUp               a person gave up finding out whether an effect happened
      DoubtNotFound               404
      SystemNotFound              404
      CallTimeout                 one call of a tool took longer than its timeout
      CallFailed                  a call gave up after its retries
      CallsFailed                 some calls of one call_many gave up
      WaitTimeout                 a wait ended without what it waited for
      ChildrenFailed              child runs did not succeed
      Fatal                       raised by authors: do not retry this step or call
      RetryLater                  raised by authors: try again after so many seconds
      Refused                     raised by tools: the other side definitely refused
      NotSent                     raised by tools: the request certainly never left

    ControlSignal (BaseException) how the engine leaves step code; never caught by authors
      StepTimeout  Suspended  RunCancelled  RunPaused  FenceLost

A message says what is, what was wanted, and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class DurableOpsError(Exception):
    """Base of every ordinary error.

    `detail` is the sentence people read; `context` holds the facts behind it, for logs and problem documents. `code` is
    stable: scripts may compare it. `http_status` is what the API answers when the error reaches it.
    """

    code: ClassVar[str] = "durableops.error"
    http_status: ClassVar[int] = 500

    def __init__(self, detail: str = "", **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context = context

    def __str__(self) -> str:
        return self.detail


class DefinitionError(DurableOpsError):
    """A declaration is wrong; raised at import or start-up, naming the files and lines."""

    code = "definition.invalid"


class _AtPath(DurableOpsError):
    """An error about one place in a JSON document."""

    def __init__(self, detail: str = "", *, path: str = "", **context: Any) -> None:
        super().__init__(detail, path=path, **context)
        self.path = path
        """JSON pointer to the offending value; empty for the whole document."""


class InputRefused(_AtPath):
    """Something that came from outside is not acceptable, and nothing was written."""

    code = "input.refused"
    http_status = 400


class InputTooLarge(InputRefused):
    """Something that came from outside exceeds a stated size."""

    code = "input.too_large"
    http_status = 413


class PayloadRefused(_AtPath):
    """A step's state or a call's result is not JSON, does not survive storage, or is too large."""

    code = "payload.refused"


class TokenRefused(DurableOpsError):
    """The API token is missing, unknown, revoked or past its end."""

    code = "token.refused"
    http_status = 401


class NotPermitted(DurableOpsError):
    """Whoever asks belongs here and lacks the permission; `context` names it."""

    code = "access.not_permitted"
    http_status = 403


class _NotFound(DurableOpsError):
    """What is asked for is not there, or belongs to somebody else."""

    http_status = 404


class RunNotFound(_NotFound):
    """There is no such run, or it belongs to somebody else."""

    code = "run.not_found"


class WorkflowNotFound(_NotFound):
    """No workflow with this name and version is loaded here."""

    code = "workflow.not_found"


class TokenNotFound(_NotFound):
    """There is no such API token in this tenant."""

    code = "token.not_found"


class BulkNotFound(_NotFound):
    """There is no such bulk action, or it belongs to somebody else."""

    code = "bulk.not_found"


class CompensationNotFound(_NotFound):
    """There is no such compensation, or it belongs to somebody else."""

    code = "compensation.not_found"


class BulkRefused(DurableOpsError):
    """The bulk action's present state does not allow this; nothing was changed."""

    code = "bulk.refused"
    http_status = 409


class BulkPlanChanged(BulkRefused):
    """What the bulk action would send again is not what was shown, or was not shown; `plan` is what it would."""

    code = "bulk.plan_changed"


class ArtifactNotFound(_NotFound):
    """There is no such file of this run, or it belongs to somebody else."""

    code = "artifact.not_found"


class PromptNotFound(_NotFound):
    """There is no such prompt of this run, it belongs to somebody else, or retention removed it."""

    code = "prompt.not_found"


class HoldNotFound(_NotFound):
    """There is no such legal hold in this tenant."""

    code = "hold.not_found"


class ArtifactGone(DurableOpsError):
    """The file was there and is not any more, or the link to it has ended."""

    code = "artifact.gone"
    http_status = 410


class ArtifactDamaged(DurableOpsError):
    """The bytes in the storage are not those that were written."""

    code = "artifact.damaged"


class SealBroken(DurableOpsError):
    """Something encrypted was changed, or none of the keys opens it."""

    code = "seal.broken"


class MessageNotFound(_NotFound):
    """There is no such message of the outbox, or it belongs to somebody else."""

    code = "message.not_found"


class EndpointNotFound(_NotFound):
    """There is no such webhook endpoint in this tenant."""

    code = "endpoint.not_found"


class TransitionRefused(DurableOpsError):
    """The run's present state does not allow the event."""

    code = "run.transition_refused"
    http_status = 409

    def __init__(
        self,
        detail: str = "",
        *,
        run: object = "",
        state: str = "",
        event: str = "",
        wanted: object = (),
    ) -> None:
        super().__init__(detail, run=str(run), state=state, event=event, wanted=wanted)
        self.run = run
        self.state = state
        self.event = event
        self.wanted = wanted


class PlanChanged(TransitionRefused):
    """What the verb would do is not what was shown any more; `plan` is what it would do now."""

    code = "run.plan_changed"

    def __init__(self, detail: str = "", *, plan: object = None, **more: Any) -> None:
        super().__init__(detail, **more)
        self.plan = plan
        self.context["plan"] = plan


class PlanWanted(PlanChanged):
    """The verb would send something again, and nobody was shown what; `plan` is what it would do."""

    code = "run.plan_wanted"


class StartConflict(DurableOpsError):
    """The start key is known with another input; the earlier run stands."""

    code = "run.start_conflict"
    http_status = 409


class EventConflict(DurableOpsError):
    """The event id is known with another content; the earlier event stands."""

    code = "event.conflict"
    http_status = 409


class QuotaConflict(DurableOpsError):
    """The quota was changed since the version this change was made from."""

    code = "quota.conflict"
    http_status = 409


class QuotaUnsafe(DurableOpsError):
    """A cap cannot be set while workers are alive that would not keep to it."""

    code = "quota.unsafe"
    http_status = 409


class RateLimited(DurableOpsError):
    """More was asked for than the quota allows in a minute. Nothing was done; try again after `after_seconds`."""

    code = "quota.rate"
    http_status = 429

    def __init__(self, detail: str = "", *, after_seconds: float = 1.0, **context: Any) -> None:
        super().__init__(detail, **context)
        self.after_seconds = after_seconds


class StaleFence(DurableOpsError):
    """A newer claim owns the run; the late write was refused. Losing is an ordinary answer."""

    code = "run.stale_fence"
    http_status = 409


class CursorRegression(DurableOpsError):
    """A cursor or checkpoint number would have gone backwards."""

    code = "checkpoint.cursor_regression"
    http_status = 409


class DuplicateName(DurableOpsError):
    """A step used one name and key twice in one entry; give the second a `key` of its own."""

    code = "step.duplicate_name"


class CompatibilityError(_AtPath):
    """Recorded bytes cannot be read by today's code; the run needs a person or a migration."""

    code = "checkpoint.incompatible"
    http_status = 409


class PlanRefused(DurableOpsError):
    """A plan that a run made for itself names steps that cannot follow. The plan it had stays; ask for another one."""

    code = "run.plan_refused"


class MigrationRefused(DurableOpsError):
    """A run cannot be migrated as it stands; nothing of it was changed. The message says what stands in the way."""

    code = "run.migration_refused"
    http_status = 409


class EffectConflict(DurableOpsError):
    """The slot holds another request. The new one was not sent."""

    code = "effect.conflict"
    http_status = 409


class ResultGone(DurableOpsError):
    """A call has happened and what it returned was removed by retention. Nothing was sent."""

    code = "effect.result_gone"
    http_status = 410


class EffectInDoubt(DurableOpsError):
    """The effect may or may not have happened; it waits to be settled."""

    code = "effect.in_doubt"
    http_status = 409


class EffectGivenUp(DurableOpsError):
    """A person gave up finding out whether the effect happened, or had it undone; the step may go on without it.

    It may have happened. It is not sent again.
    """

    code = "effect.given_up"
    http_status = 409


class SystemNotFound(_NotFound):
    """There is no such legacy system for whoever asks, or no such call in its queue."""

    code = "system.not_found"


class DoubtNotFound(_NotFound):
    """There is no such doubt, or it belongs to somebody else."""

    code = "doubt.not_found"


class CallTimeout(DurableOpsError):
    """One call of a tool took longer than the tool's timeout."""

    code = "call.timeout"


class CallFailed(DurableOpsError):
    """A call gave up after the retries its tool allows."""

    code = "call.failed"


class CallsFailed(DurableOpsError):
    """Some calls of one `call_many` gave up; `context` says which, the others are recorded."""

    code = "call.some_failed"


class WaitTimeout(DurableOpsError):
    """A wait ended by its own clock, without what it waited for."""

    code = "wait.timeout"


class ChildrenFailed(DurableOpsError):
    """Child runs ended in a state other than succeeded; `context` says which."""

    code = "run.children_failed"


class Fatal(DurableOpsError):
    """Raise it in a step or tool when trying again cannot help."""

    code = "step.fatal"


class RetryLater(DurableOpsError):
    """Raise it in a step or tool to be tried again after `after_seconds`."""

    code = "step.retry_later"

    def __init__(self, after_seconds: float, detail: str = "", **context: Any) -> None:
        super().__init__(detail or f"try again in {after_seconds} s", **context)
        # Exceptions are copied and pickled by their positional arguments.
        self.args = (after_seconds, self.detail)
        self.after_seconds = after_seconds


class Refused(DurableOpsError):
    """Raise it in a tool when the other side definitely refused: a result, not a doubt."""

    code = "call.refused"


class NotSent(DurableOpsError):
    """Raise it in a tool when the request certainly never left: safe to try again."""

    code = "call.not_sent"


class ControlSignal(BaseException):
    """How the engine leaves step code.

    A BaseException, because `except Exception` in a step must not swallow it. Code that
    catches it by name gains nothing: whatever it does next is refused by the fence.
    """

    code: ClassVar[str] = "signal"

    def __init__(self, detail: str = "", **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context = context

    def __str__(self) -> str:
        return self.detail


class StepTimeout(ControlSignal):
    """The step ran longer than its timeout."""

    code = "signal.step_timeout"


class Suspended(ControlSignal):
    """The step waits; it will be entered again from its top."""

    code = "signal.suspended"


class RunCancelled(ControlSignal):
    """Somebody cancelled the run."""

    code = "signal.run_cancelled"


class RunPaused(ControlSignal):
    """Somebody paused the run, or everything."""

    code = "signal.run_paused"


class FenceLost(ControlSignal):
    """A newer claim owns the run; nothing this worker does for it counts any more."""

    code = "signal.fence_lost"

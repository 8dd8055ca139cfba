"""What only a demo's console can do: kill a worker of this machine in front of somebody.

The setting DEMO switches it on, and production refuses to start with it. Whose rights a request has, `access` knows.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import transaction

from durableops.engine.machine import has_gone, machine
from durableops.errors import InputRefused
from runs.models import AuditEntry, Run, Tenant, Worker
from runs.states import State

VERB = "kill_worker"


def is_on() -> bool:
    """Whether this console belongs to a demo."""
    return bool(settings.DEMO) and not settings.PRODUCTION


def may_be_killed(worker: Worker) -> bool:
    """Whether it is a living worker of this very machine, and its number still is that process's."""
    if not is_on() or worker.ended_at is not None or min(worker.pid, worker.child_pid) <= 1 or has_gone(worker.pid):
        return False
    if worker.machine != machine() or (not machine() and worker.host != socket.gethostname()):
        return False
    return _parent_of(worker.child_pid) in (worker.pid, None)


def in_hand(worker: Worker) -> list[Run]:
    """The runs it holds."""
    return list(Run.objects.filter(worker=worker, state=State.RUNNING).select_related("tenant")[:100])


def kill(worker: Worker, *, held: list[Run], tenant: Tenant, actor: str) -> None:
    """SIGKILL parent and child, as when a machine goes: neither can say a word. Audited on the worker and on its runs.

    Raises InputRefused when there is nothing to kill.
    """
    if not may_be_killed(worker):
        raise InputRefused(f"worker {worker.number} is not alive on this machine any more. Nothing was killed.")
    with transaction.atomic():
        _audit(tenant, "worker", str(worker.pk), actor=actor, worker=worker)
        for run in held:
            _audit(run.tenant, "run", str(run.pk), actor=actor, worker=worker)
    for pid in (worker.pid, worker.child_pid):  # the parent first: it would report its child's end
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _audit(tenant: Tenant, kind: str, target: str, *, actor: str, worker: Worker) -> None:
    AuditEntry.objects.create(
        tenant=tenant, actor=actor, verb=VERB, target_kind=kind, target_id=target, reason="pressed in the demo",
        after={"worker": worker.number, "pid": worker.pid, "signal": "SIGKILL"},
    )  # fmt: skip


def _parent_of(pid: int) -> int | None:
    """The parent of a process; 0 if there is none such, None where that cannot be told."""
    if not Path("/proc/self/stat").exists():
        return None
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0

"""Worker leases: one row for each start of a worker process, renewed by a counter."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

LOCK_CLASS = 0x0D0B
"""First key of the session advisory lock a worker holds; the second is its number."""


class Worker(models.Model):
    """A worker's lease. Observers judge it by whether `counter` moves on their own clock, never by `renewed_at`."""

    id = models.UUIDField(primary_key=True)
    kind = models.CharField(max_length=6, default="worker", db_default="worker")
    """What it moves: a `worker` runs, a `relay` messages of the outbox."""
    number = models.IntegerField(unique=True)
    host = models.CharField(max_length=255)
    machine = models.CharField(max_length=100, default="", db_default="", blank=True)
    """The running kernel and its numbering of processes: where an observer with the same one can ask for `pid`."""
    pid = models.IntegerField()
    child_pid = models.IntegerField(default=0)
    started_at = models.DateTimeField(db_default=Now())
    counter = models.BigIntegerField(default=0)
    renewed_at = models.DateTimeField(db_default=Now())
    lease_seconds = models.FloatField()
    heartbeat_seconds = models.FloatField()
    draining = models.BooleanField(default=False)
    ended_at = models.DateTimeField(null=True)
    ended_why = models.CharField(max_length=200, default="", blank=True)
    gone = models.BooleanField(default=False, db_default=False)
    """Whether its processes are known not to exist any more. One that only fell silent may still send something."""
    versions = models.JSONField(default=dict)
    """Workflow name to the versions this process can run, for people."""
    plans = models.JSONField(null=True)
    """Ids of the plans this process can run; it takes no others. NULL when it has not said: then it may have any."""
    destinations = models.JSONField(default=list, db_default=[])
    """Names of the destinations whose handlers a relay knows."""

    takes_slots = models.BooleanField(default=True, db_default=False)
    """Whether its claims keep to caps. False for the code of before: none of it may run where there is a cap."""

    # What it is like just now: told by the worker itself about once a second, for people.
    concurrency = models.IntegerField(default=1, db_default=1)
    """How many runs it holds at most."""
    isolated = models.BooleanField(default=False, db_default=False)
    """Whether it takes only runs that asked for a process of their own."""
    in_hand = models.IntegerField(default=0, db_default=0)
    loop_lag_seconds = models.FloatField(default=0.0, db_default=0.0)
    """How late its event loop answered."""
    forced_stops = models.IntegerField(default=0, db_default=0)
    """Steps that did not stop and were fenced off."""
    memory_bytes = models.BigIntegerField(default=0, db_default=0)
    """Resident memory of the process that moves the runs."""
    connections = models.IntegerField(default=0, db_default=0)
    """Database connections open in both of its processes."""

    class Meta:
        db_table = "runs_worker"
        indexes = [
            # upkeep.reaper: the few living ones among all that ever were.
            models.Index(fields=["number"], name="worker_living", condition=models.Q(ended_at=None)),
            # engine.offers: who has gone only just now, and may come back with what it could run.
            models.Index(fields=["ended_at"], name="worker_gone", condition=models.Q(ended_at__isnull=False)),
        ]

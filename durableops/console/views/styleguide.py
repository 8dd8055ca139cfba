"""Every component in every state, for whoever draws the next page. Development only."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpResponse
from django.shortcuts import render

from durableops import clock
from durableops.access import Permission
from durableops.console import diffs, payloads, timeline
from durableops.console.http import ConsoleRequest, context_for, page
from runs.states import State

SAFETY = ("read", "local", "keyed", "outbox", "legacy")
OUTCOMES = ("intended", "succeeded", "refused", "withdrawn", "in_doubt")


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page."""
    if settings.PRODUCTION:
        raise Http404("The style guide is for development.")
    context = {
        **context_for(request, "styleguide"), "states": [*State, "paused"], "safety": SAFETY, "outcomes": OUTCOMES,
        "kinds": ("info", "warning", "error"), "drawing": _drawing(),
        "payload": payloads.show("state", '{"customer":"Miller","password":"secret","lines":[1,2,3]}', sight=True),
        "hidden": payloads.show("state", '{"customer":"Miller"}', sight=False),
        "diff": diffs.lines('{"rows":1,"done":false}', '{"rows":2,"done":false}'),
    }  # fmt: skip
    return render(request, "console/styleguide.html", context)


def _drawing() -> timeline.Drawing | None:
    """A made-up run with everything a drawing can show."""
    start = clock.now() - timedelta(hours=1)

    def at(seconds: float) -> timedelta:
        return timedelta(seconds=seconds)

    told = [
        (0, "start", "queued", "prepare"),
        (2, "claim", "running", "prepare"),
        (20, "lose_worker", "queued", "execute"),
        (21, "claim", "running", "execute"),
        (40, "suspend", "waiting", "deliver"),
    ]
    moves = [timeline.Move(at=start + at(s), event=e, to_state=state, step_id=step) for s, e, state, step in told]
    commits = [
        timeline.Commit(at=start + at(8), step_id="prepare", next_step="execute"),
        timeline.Commit(at=start + at(16), step_id="execute", next_step="execute", page=True),
        timeline.Commit(at=start + at(36), step_id="execute", next_step="deliver"),
    ]
    now = start + at(3600)
    return timeline.draw(
        ["prepare", "execute", "deliver"], timeline.spans_of(moves, commits, now=now), now=now,
        clocks=[(start + at(12), "execute", "call timeout")], resumes=[(1, start + at(21), "worker lost")],
    )  # fmt: skip

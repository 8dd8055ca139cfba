"""The console's addresses. Each leads to a view that names the permission it asks for."""

from __future__ import annotations

from django.urls import path

from durableops.console import database as database  # connects its receiver
from durableops.console.views import (
    branching,
    bulk,
    compensation,
    events,
    files,
    front,
    inbox,
    outbox,
    overview,
    pauses,
    people,
    prompts,
    run,
    runs,
    start,
    styleguide,
    verbs,
    webhooks,
    workers,
)

app_name = "console"

urlpatterns = [
    path("", front.home, name="home"),
    path("sign-in/", front.sign_in, name="sign_in"),
    path("sign-out/", front.sign_out, name="sign_out"),
    path("look/", front.look, name="look"),
    path("overview/", overview.show, name="overview"),
    path("runs/", runs.show, name="runs"),
    path("runs/start/", start.show, name="start"),
    path("runs/table/", runs.table, name="runs_table"),
    path("runs/<uuid:run_id>/", run.show, name="run"),
    path("runs/<uuid:run_id>/live/", run.live, name="run_live"),
    path("runs/<uuid:run_id>/checkpoints/<int:seq>/", run.checkpoint, name="checkpoint"),
    path("runs/<uuid:run_id>/checkpoints/<int:seq>/<slug:verb>/", branching.ask, name="branch"),
    path("runs/<uuid:run_id>/effects/<int:effect_id>/", run.effect, name="effect"),
    path("runs/<uuid:run_id>/files/<int:artifact_id>/", files.read, name="artifact"),
    path("runs/<uuid:run_id>/files/<int:artifact_id>/link/", files.link, name="artifact_link"),
    path("runs/<uuid:run_id>/prompts/<int:prompt_id>/", prompts.read, name="prompt"),
    path("files/<str:token>/", files.follow, name="file"),
    path("runs/<uuid:run_id>/approvals/<int:wait_id>/<slug:verb>/", verbs.decide, name="decide"),
    path("runs/<uuid:run_id>/waits/<int:wait_id>/send/", events.send, name="send"),
    path("runs/<uuid:run_id>/waits/<int:wait_id>/extend/", verbs.extend_wait, name="extend_wait"),
    path("runs/<uuid:run_id>/do/<slug:verb>/", verbs.run_verb, name="run_verb"),
    path("inbox/", inbox.show, name="inbox"),
    path("inbox/<slug:queue>/<slug:key>/<slug:verb>/", inbox.claim, name="inbox_claim"),
    path("compensations/<int:compensation_id>/", compensation.show, name="compensation"),
    path("compensations/<int:compensation_id>/<slug:verb>/", compensation.decide, name="compensation_verb"),
    path("bulk/", bulk.show, name="bulks"),
    path("bulk/<int:bulk_id>/", bulk.one, name="bulk"),
    path("bulk/<int:bulk_id>/<slug:verb>/", bulk.act, name="bulk_verb"),
    path("outbox/", outbox.show, name="outbox"),
    path("outbox/destinations/<slug:verb>/", outbox.destination_verb, name="destination_verb"),
    path("outbox/messages/<int:message_id>/", outbox.message, name="message"),
    path("outbox/messages/<int:message_id>/<slug:verb>/", outbox.message_verb, name="message_verb"),
    path("webhooks/<slug:slug>/", webhooks.show, name="webhooks"),
    path("webhooks/<slug:slug>/<uuid:endpoint_id>/", webhooks.endpoint, name="webhook"),
    path("workers/", workers.show, name="workers"),
    path("workers/<uuid:worker_id>/kill/", workers.kill, name="worker_kill"),
    path("people/<slug:slug>/", people.show, name="people"),
    path("pauses/", pauses.show, name="pauses"),
    path("pauses/<int:switch_id>/lift/", pauses.lift, name="pause_lift"),
    path("styleguide/", styleguide.show, name="styleguide"),
]

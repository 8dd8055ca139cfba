"""Retention: an admin's business; each thing says first what it would do, and stands in the audit with its reason."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.urls import reverse

from durableops.engine.retention import holds, rules
from durableops.upkeep.retention import sizes
from runs.models import (
    AuditEntry,
    ClassSize,
    Cleanup,
    Erasure,
    LegalHold,
    Relook,
    RetentionPreview,
    RetentionRule,
    RunSummary,
)
from tests.factories import make_artifact, make_checkpoint, make_prompt, make_run, make_tenant, now

ADDRESS = "/retention/acme/"
DAY = timedelta(days=1)


@pytest.fixture
def admin(signed_in):
    return signed_in("admin")


def finished(*, ago=40 * DAY, **over):
    at = now() - ago
    run = make_run(state="succeeded", finished_at=at, created_at=at, **over)
    make_checkpoint(run, seq=1, kind="page", state='{"n":1}', state_seq=1)
    return run


def text_of(answer) -> str:
    return answer.content.decode()


def test_matrix_shows_how_long_what_is_kept_and_whose_rule_says_it(admin):
    run = finished()
    rules.set_rule("decision", keeps="seconds", seconds=3600, tenant=run.tenant, workflow="made", actor="ada",
                   reason="privacy")  # fmt: skip
    rules.set_rule("event", keeps="for_ever", tenant=None, actor="root", reason="law")
    shown = text_of(admin.get(ADDRESS))
    assert "<b>1 hour</b>" in shown
    assert "workflow made, this tenant, by ada: privacy" in shown
    assert "for every tenant, by root: law" in shown
    assert ">7 days<" in shown


def test_rule_is_shown_by_what_it_would_change_and_nothing_of_that_stays(admin):
    run = finished(ago=10 * DAY)
    shown = text_of(
        admin.post(ADDRESS, {"act": "rehearse", "subject": "checkpoint", "length": "5 days", "workflow": "made"})
    )
    assert "1 more go" in shown
    assert reverse("console:run", args=[run.pk]) in shown
    assert "Set the rule" in shown
    assert [m.objects.count() for m in (RetentionRule, Relook, AuditEntry)] == [0, 0, 0]


def test_rule_that_keeps_more_says_what_would_not_go(admin):
    finished()
    shown = text_of(admin.post(ADDRESS, {"act": "rehearse", "subject": "checkpoint", "length": "for ever"}))
    assert "kept that would have gone" in shown


def test_rule_is_set_with_its_reason(admin):
    given = {"act": "set", "subject": "checkpoint", "length": "0", "workflow": "made", "reason": "less is more"}
    assert admin.post(ADDRESS, given).status_code == 302
    rule = RetentionRule.objects.get()
    assert (rule.tenant, rule.workflow, rule.keeps, rule.seconds, rule.actor) == (
        make_tenant(), "made", "seconds", 0, "admin",
    )  # fmt: skip
    assert AuditEntry.objects.get().reason == "less is more"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"length": "soon", "reason": "r"}, "is no length of time"),
        ({"length": "7 days", "reason": " "}, "say why"),
        ({"length": "7 days", "reason": "r", "subject": "nothing"}, "nothing that rules are about"),
        ({"length": "200 years", "reason": "r"}, "more than a hundred years"),
        ({"length": "1 day", "reason": "r", "subject": "audit", "workflow": "made"}, "belong to a tenant"),
    ],
)
def test_rule_that_cannot_be_is_refused_and_what_was_typed_stays(admin, given, wrong):
    answer = admin.post(ADDRESS, {"act": "set", "subject": "checkpoint", **given})
    assert answer.status_code == 422
    assert wrong in text_of(answer)
    assert f'value="{given["length"]}"' in text_of(answer)
    assert not RetentionRule.objects.exists()


def test_rule_for_every_tenant_is_not_an_admins_to_set(admin):
    given = {"act": "set", "subject": "event", "length": "1 day", "scope": "all", "reason": "r"}
    assert admin.post(ADDRESS, given).status_code == 403
    assert not RetentionRule.objects.exists()


def test_superuser_sets_a_rule_for_every_tenant(client, django_user_model):
    make_tenant()
    client.force_login(django_user_model.objects.create_superuser("root"))
    given = {"act": "set", "subject": "event", "length": "1 day", "scope": "all", "reason": "r"}
    assert client.post(ADDRESS, given).status_code == 302
    assert RetentionRule.objects.get().tenant is None


def test_preview_says_what_goes_and_what_stays_and_why_of_this_tenant_alone(admin):
    goes, stays = finished(), finished()
    other = finished(tenant=make_tenant("other"))
    holds.place(tenant=stays.tenant, run_id=stays.pk, actor="ada", reason="court")
    answer = admin.post(f"{ADDRESS}?tab=preview", {"act": "preview"})
    shown = text_of(admin.get(answer["Location"]))
    assert reverse("console:run", args=[goes.pk]) in shown
    assert "a legal hold" in shown
    assert str(other.pk) not in shown
    stored = RetentionPreview.objects.get()
    assert (stored.made_by, stored.tenant, stored.ran_at) == ("admin", goes.tenant, None)
    assert not Cleanup.objects.exists()


def test_preview_of_another_tenant_is_not_shown(admin):
    finished(tenant=make_tenant("other"), workflow="secret-workflow")
    RetentionPreview.objects.create(
        made_by="b", as_of=now(), rule=0, tenant=make_tenant("other"),
        figures={"runs": 1, "rows": 1, "bytes": 1, "complete": True, "stays": [],
                 "goes": [{"workflow": "theirs-alone"}]},
    )  # fmt: skip
    stored = RetentionPreview.objects.get()
    assert "theirs-alone" not in text_of(admin.get(f"{ADDRESS}?tab=preview&preview={stored.pk}"))


def test_log_is_shown_in_pages_and_of_this_tenant_alone(admin):
    for n in range(52):
        Cleanup.objects.create(
            data_class="event", kind="runs_event", tenant=make_tenant(), workflow=f"w{n}", rule=0, seconds=1,
            cutoff=now(), reason="policy", runs=1, rows=n, bytes=1, cleaner="upkeep",
        )  # fmt: skip
    Cleanup.objects.create(
        data_class="event", kind="runs_event", tenant=make_tenant("other"), workflow="theirs", rule=0, seconds=1,
        cutoff=now(), reason="policy", runs=1, rows=1, bytes=1, cleaner="upkeep",
    )  # fmt: skip
    first = text_of(admin.get(f"{ADDRESS}?tab=log"))
    assert "theirs" not in first
    assert (">w51<" in first, ">w2<" in first, ">w1<" in first) == (True, True, False)
    older = Cleanup.objects.get(workflow="w2").pk
    assert f"before={older}" in first
    second = text_of(admin.get(f"{ADDRESS}?tab=log&before={older}"))
    assert (">w1<" in second, ">w2<" in second) == (True, False)


def test_hold_is_placed_on_a_run_a_label_or_the_tenant_and_lifted_with_a_reason(admin):
    run = finished()
    for more in ({"what": "run", "run": str(run.pk)}, {"what": "label", "label": "customer", "value": "ann"},
                 {"what": "tenant"}):  # fmt: skip
        answer = admin.post(f"{ADDRESS}?tab=holds", {"act": "place", "reason": "court", **more})
        assert answer.status_code == 302, text_of(answer)
    assert [one.scope for one in LegalHold.objects.order_by("pk")] == ["run", "label", "tenant"]
    shown = text_of(admin.get(f"{ADDRESS}?tab=holds"))
    assert ("the whole tenant" in shown, "customer" in shown, "court" in shown) == (True, True, True)
    hold = LegalHold.objects.get(scope="run")
    assert admin.post(f"{ADDRESS}?tab=holds", {"act": "lift", "hold": hold.pk, "reason": ""}).status_code == 422
    assert admin.post(f"{ADDRESS}?tab=holds", {"act": "lift", "hold": hold.pk, "reason": "over"}).status_code == 302
    hold.refresh_from_db()
    assert (hold.lifted_by, hold.lift_reason) == ("admin", "over")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"what": "run", "run": "me"}, 422),
        ({"what": "run", "run": "019a7c00-0000-7000-8000-000000000000"}, 404),
        ({"what": "label", "label": ""}, 422),
        ({"what": "everything"}, 422),
    ],
)
def test_hold_on_nothing_is_refused(admin, given, status):
    assert admin.post(f"{ADDRESS}?tab=holds", {"act": "place", "reason": "r", **given}).status_code == status
    assert not LegalHold.objects.exists()


def test_run_and_hold_of_another_tenant_are_out_of_reach(admin):
    other = finished(tenant=make_tenant("other"))
    place = {"act": "place", "what": "run", "run": str(other.pk), "reason": "r"}
    assert admin.post(f"{ADDRESS}?tab=holds", place).status_code == 404
    hold = holds.place(tenant=other.tenant, actor="b", reason="court")
    answer = admin.post(f"{ADDRESS}?tab=holds", {"act": "lift", "hold": hold.pk, "reason": "r"})
    assert answer.status_code == 404
    hold.refresh_from_db()
    assert hold.lifted_at is None


def test_erasure_says_what_it_means_and_wants_the_tenants_name(admin):
    finished(labels={"customer": "ann"})
    make_run(state="waiting", labels={"customer": "ann"})
    finished(labels={"customer": "bob"})
    asked = {"what": "label", "label": "customer", "value": "ann"}
    shown = text_of(admin.post(f"{ADDRESS}?tab=erasures", {"act": "ask", **asked}))
    assert ("<b>2 runs</b>" in shown, "1 of them is open" in shown) == (True, True)
    assert not Erasure.objects.exists()
    unsure = admin.post(f"{ADDRESS}?tab=erasures", {"act": "erase", "reason": "asked", "sure": "yes", **asked})
    assert (unsure.status_code, Erasure.objects.count()) == (422, 0)
    assert "type acme" in text_of(unsure)
    sure = admin.post(f"{ADDRESS}?tab=erasures", {"act": "erase", "reason": "asked", "sure": "acme", **asked})
    assert sure.status_code == 302
    one = Erasure.objects.get()
    assert (one.label, one.value, one.requested_by) == ("customer", "ann", "admin")
    Erasure.objects.update(stayed={"key_window": 3}, erased={"input": {"rows": 7, "bytes": 70}})
    shown = text_of(admin.get(f"{ADDRESS}?tab=erasures"))
    assert "3 runs: the other side still knows a key" in shown
    assert "input: 7 rows" in shown


def test_page_is_for_admins_of_the_tenant(signed_in):
    assert signed_in("operator").get(ADDRESS).status_code == 403
    assert signed_in("stranger").get(ADDRESS).status_code == 404


@pytest.mark.parametrize(
    ("before", "after", "alarm"),
    [(400_000_000, 700_000_000, True), (400_000_000, 500_000_000, False), (1000, 90_000_000, False)],
)
def test_class_that_grew_too_fast_is_an_alarm_on_the_overview(admin, before, after, alarm):
    for ago, size in ((6 * DAY, before), (timedelta(0), after)):
        made = ClassSize.objects.create(data_class="event", rows=1, bytes=size)
        ClassSize.objects.filter(pk=made.pk).update(at=now() - ago)
    assert [one.alarming for one in sizes.growth()] == [alarm]
    shown = text_of(admin.get("/overview/"))
    assert ("event grows" in shown) is alarm
    assert "Kept" in shown
    assert ("grew by" in text_of(admin.get(ADDRESS))) is True


def test_overview_shows_sizes_by_class_with_what_grew(admin):
    for ago, size in ((6 * DAY, 1_000_000), (DAY, 3_000_000)):
        made = ClassSize.objects.create(data_class="checkpoint", rows=20, bytes=size)
        ClassSize.objects.filter(pk=made.pk).update(at=now() - ago)
    shown = text_of(admin.get("/overview/"))
    assert "Kept, by class" in shown
    assert re.search(r'id="size-checkpoint"><td>checkpoint</td><td class="num">20</td>.*?grew by 2\.0 MB', shown)


def test_sizes_are_not_shown_to_who_administers_nothing(signed_in):
    ClassSize.objects.create(data_class="event", rows=1, bytes=5_000_000_000)
    shown = text_of(signed_in("viewer").get("/overview/"))
    assert ("5.0 GB" in shown, "Kept, by class" in shown) == (False, False)


@pytest.mark.parametrize(
    ("state", "ago", "said"),
    [("waiting", None, "go 7 days after its end"), ("succeeded", 2 * DAY, "go on "), ("succeeded", 8 * DAY, "go soon")],
)
def test_run_says_when_its_raw_prompts_go(signed_in, state, ago, said):
    over = {} if ago is None else {"finished_at": now() - ago}
    run = make_run(state=state, **over)
    address = reverse("console:run", args=[run.pk])
    viewer = signed_in("viewer")
    assert "raw prompts" not in text_of(viewer.get(address))
    make_prompt(run)
    assert f"raw prompts <b>{said}" in text_of(viewer.get(address))


def test_held_run_says_why_its_raw_prompts_stay(signed_in):
    run = finished()
    make_prompt(run)
    holds.place(tenant=run.tenant, run_id=run.pk, actor="ada", reason="court")
    assert "raw prompts <b>stay: a legal hold" in text_of(
        signed_in("viewer").get(reverse("console:run", args=[run.pk]))
    )


# C121: and how much of it there is
def test_run_says_of_each_class_until_when_it_is_kept_and_what_has_gone(admin, media):
    run = finished(state_bytes=1234)
    make_artifact(run)
    rules.set_rule("event", keeps="for_ever", tenant=run.tenant, actor="ada", reason="law")
    RunSummary.objects.create(
        run=run, finished_at=run.finished_at, version=1, checkpoints=2, cleaned={"temp_file": now().isoformat()}
    )
    shown = text_of(admin.get(reverse("console:run", args=[run.pk]) + "?tab=artifacts"))
    assert re.search(r'id="kept-temp_file"><td>temp file</td>.*?<td>0</td><td><span class="soft">gone', shown)
    assert re.search(r'id="kept-checkpoint">.*?<td class="num">1</td><td class="num">\d+ B</td>', shown)
    assert re.search(r'id="kept-event">.*?<td>for ever</td><td>never', shown)
    assert "its checkpoints stored 1.2 kB of state" in shown
    assert connection.alias == "default"


def test_run_is_held_and_let_go_on_its_own_page_by_an_admin_with_a_reason(admin):
    run = finished()
    page, hold, lift = (
        reverse("console:run", args=[run.pk]),
        reverse("console:run_verb", args=[run.pk, "place_hold"]),
        reverse("console:run_verb", args=[run.pk, "lift_hold"]),
    )
    assert ('id="do-place_hold"' in text_of(admin.get(page)), "do-lift_hold" in text_of(admin.get(page))) == (
        True,
        False,
    )
    assert "Nothing</b> of this run goes" in text_of(admin.get(hold))
    assert admin.post(hold, {"reason": " "}).status_code == 422
    assert not LegalHold.objects.exists()
    admin.post(hold, {"reason": "court"})
    held = LegalHold.objects.get()
    assert (held.scope, held.run_id, held.placed_by, held.reason) == ("run", run.pk, "admin", "court")
    shown = text_of(admin.get(page))
    assert "under <b>legal hold" in shown
    assert ("do-place_hold" in shown, 'id="do-lift_hold"' in shown) == (False, True)
    # Placed once more meanwhile, elsewhere: both are lifted.
    holds.place(tenant=run.tenant, run_id=run.pk, actor="bob", reason="another court")
    admin.post(lift, {"reason": "over"})
    assert set(LegalHold.objects.values_list("lifted_by", "lift_reason")) == {("admin", "over")}
    assert admin.post(lift, {"reason": "again"}).status_code == 404
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True)) == [
        "place_hold", "place_hold", "lift_hold", "lift_hold",
    ]  # fmt: skip


def test_hold_is_not_offered_to_who_may_not_place_it(signed_in):
    run = finished()
    operator = signed_in("operator")
    assert "do-place_hold" not in text_of(operator.get(reverse("console:run", args=[run.pk])))
    assert operator.post(reverse("console:run_verb", args=[run.pk, "place_hold"]), {"reason": "x"}).status_code == 403
    assert not LegalHold.objects.exists()

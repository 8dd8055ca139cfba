"""Bulk actions on the pages: what is chosen is captured, named with its number, and nothing can widen it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from django.urls import reverse

from durableops.engine.bulk import executing
from runs.models import AuditEntry, Bulk, BulkItem, Run
from tests.factories import make_effect, make_run, make_tenant

HTMX = {"HX-Request": "true"}


def choose(browser: Any, verb: str, *runs: Run, scope: str = "selected", query: str = "") -> Any:
    given = {"verb": verb, "scope": scope, "filter": query, "run": [str(run.pk) for run in runs]}
    return browser.post(reverse("console:bulks"), given)


def act(browser: Any, bulk: Bulk, verb: str, **given: str) -> Any:
    more = {"plan_hash": bulk.plan_hash} if bulk.plan_hash else {}
    return browser.post(reverse("console:bulk_verb", args=[bulk.pk, verb]), {"reason": "because", **more, **given})


def text_of(browser: Any, bulk: Bulk, query: str = "") -> str:
    answer = browser.get(reverse("console:bulk", args=[bulk.pk]) + query)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_list_offers_what_a_person_may_do_with_many_runs(signed_in):
    make_run()
    address = reverse("console:runs")
    offered = signed_in("operator").get(address).content.decode()
    assert [f'value="{verb}"' in offered for verb in ("pause", "resume", "retry", "cancel")] == [True] * 4
    assert 'name="verb"' not in signed_in("viewer").get(address).content.decode()


def test_ticked_runs_are_previewed_with_their_number_and_states_before_anything_is_done(signed_in):
    operator = signed_in("operator")
    runs = [make_run(), make_run(state="waiting"), make_run(state="succeeded")]
    make_run()
    answer = choose(operator, "cancel", *runs)
    bulk = Bulk.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, reverse("console:bulk", args=[bulk.pk]))
    text = text_of(operator, bulk)
    assert "Cancel 3 runs" in text
    assert "preview: nothing is done yet" in text
    assert "Cancel 2 runs" in text  # the button: what would not be refused
    assert "succeeded: refused; it needs open runs" in text.replace("<b>1</b> ", "")
    assert set(Run.objects.values_list("state", flat=True)) == {"queued", "waiting", "succeeded"}


def test_all_that_match_are_captured_once_however_the_page_is_reloaded(signed_in):  # C125
    operator = signed_in("operator")
    matching = [make_run(state="failed", labels={"n": str(n)}) for n in range(12)]
    for state in ("queued", "waiting", "failed"):
        make_run(state=state, tenant=make_tenant("other"))
    make_run(state="queued")
    query = urlencode({"q": "state:failed tenant:acme"})
    page = operator.get(f"{reverse('console:runs')}?{query}").content.decode()
    assert "all 12 matching" in page
    choose(operator, "retry", scope="all", query=query)
    bulk = Bulk.objects.get()
    late = make_run(state="failed")
    for _ in range(3):  # reload, back, forward, reload: the address names the action, not a filter
        text = text_of(operator, bulk)
        assert "Retry 12 runs" in text
        assert "all that match state:failed tenant:acme" in text
    assert text.count('id="line-') == 5
    answer = act(operator, bulk, "start")
    assert answer.status_code == 302
    while executing.execute_batch():
        pass
    assert set(BulkItem.objects.values_list("run_id", flat=True)) == {run.pk for run in matching}
    late.refresh_from_db()
    assert (late.state, Run.objects.filter(state="queued", tenant__slug="acme").count()) == ("failed", 13)


def test_every_run_there_is_has_to_be_typed(signed_in):  # C125
    operator = signed_in("operator")
    for _ in range(2):
        make_run()
    choose(operator, "cancel", scope="all")
    bulk = Bulk.objects.get()
    assert "This is every run of acme. Type 2 to say so" in text_of(operator, bulk)
    for typed in ("", "3", "all"):
        answer = act(operator, bulk, "start", typed=typed)
        assert (answer.status_code, "type 2 to say that you mean all" in answer.content.decode()) == (400, True)
    assert act(operator, bulk, "start", typed="2").status_code == 302


def test_runs_of_two_tenants_are_not_one_action(signed_in, django_user_model):
    root = django_user_model.objects.create_superuser("root")
    browser = signed_in("operator")
    browser.force_login(root)
    answer = choose(browser, "cancel", make_run(), make_run(tenant=make_tenant("other")))
    assert answer.status_code == 422
    assert "belong to 2 tenants (acme, other)" in answer.content.decode()
    assert choose(browser, "cancel", scope="all").status_code == 422
    assert not Bulk.objects.exists()


@pytest.mark.parametrize(
    ("verb", "runs", "status"), [("cancel", 0, 422), ("migrate-nothing", 1, 422), ("cancel", 1, 302)]
)
def test_nothing_ticked_and_unknown_verbs_are_refused_in_a_sentence(signed_in, verb, runs, status):
    answer = choose(signed_in("operator"), verb, *[make_run() for _ in range(runs)])
    assert answer.status_code == status
    assert Bulk.objects.exists() == (status == 302)


def test_start_wants_a_reason_and_happens_once(signed_in):  # C046
    operator = signed_in("operator")
    choose(operator, "cancel", make_run())
    bulk = Bulk.objects.get()
    assert act(operator, bulk, "start", reason=" ").status_code == 400
    assert act(operator, bulk, "start").status_code == 302
    again = act(operator, bulk, "start")
    assert again.status_code == 409
    assert "is running by operator; &#x27;start&#x27; needs preview" in again.content.decode()
    assert AuditEntry.objects.filter(verb="bulk_start").count() == 1


def test_progress_is_shown_while_it_runs_and_the_page_stands_still_afterwards(signed_in):
    operator = signed_in("operator")
    choose(operator, "cancel", make_run(), make_run(), make_run(state="succeeded"))
    bulk = Bulk.objects.get()
    act(operator, bulk, "start")
    assert "data-live=" in text_of(operator, bulk)
    executing.execute_batch(1)
    act(operator, bulk, "pause")
    assert "Paused by <b>operator</b>" in text_of(operator, bulk)
    act(operator, bulk, "resume")
    while executing.execute_batch():
        pass
    text = text_of(operator, bulk)
    assert "data-live=" not in text
    assert "needs an open run" in text_of(operator, bulk, "?state=refused")
    assert text_of(operator, bulk, "?state=done").count('id="line-') == 2
    region = operator.get(reverse("console:bulk", args=[bulk.pk]), headers=HTMX).content.decode()
    assert region.startswith('<div id="bulk-region"')


def test_aborted_action_says_how_many_were_left_as_they_were(signed_in):
    operator = signed_in("operator")
    choose(operator, "cancel", make_run(), make_run())
    bulk = Bulk.objects.get()
    act(operator, bulk, "start")
    executing.execute_batch(1)
    act(operator, bulk, "abort")
    assert "Left as they were</dt><dd>1" in text_of(operator, bulk)
    assert act(operator, bulk, "resume").status_code == 409


def test_preview_is_discarded_without_a_trace(signed_in):
    operator = signed_in("operator")
    choose(operator, "cancel", make_run())
    assert act(operator, Bulk.objects.get(), "discard", reason="").status_code == 302
    assert not Bulk.objects.exists()
    assert not AuditEntry.objects.exists()


def test_bulk_retry_says_what_goes_out_again_and_refuses_when_that_has_changed(signed_in):
    operator = signed_in("operator")
    run = make_run(state="failed")
    make_effect(run, state="in_doubt", tool="charge")
    choose(operator, "retry", run)
    bulk = Bulk.objects.get()
    assert "1 call of <b>charge</b> (keyed): no outcome on record, sent again" in text_of(operator, bulk)
    make_effect(run, state="in_doubt", tool="late")
    answer = act(operator, bulk, "start")
    assert answer.status_code == 409
    assert "1 of its 1 runs have changed since it was shown" in answer.content.decode()
    assert "<b>late</b>" in answer.content.decode()


def test_list_of_actions_leaves_previews_out(signed_in):
    operator = signed_in("operator")
    choose(operator, "cancel", make_run())
    address = reverse("console:bulks")
    assert "No bulk action yet" in operator.get(address).content.decode()
    act(operator, Bulk.objects.get(), "start")
    assert "1 selected" in operator.get(address).content.decode()
    assert "1 selected" not in signed_in("stranger").get(address).content.decode()

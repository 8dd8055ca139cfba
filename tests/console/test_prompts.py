"""Reading raw prompts on the pages: asked why first, audited before, hidden from everybody else."""

from __future__ import annotations

from django.urls import reverse

from runs.models import AuditEntry, Membership
from tests.factories import make_prompt, make_run


def test_reader_says_why_then_sees_it_and_the_audit_says_so(signed_in):
    prompt = make_prompt(make_run(), text="the words")
    address = reverse("console:prompt", args=[prompt.run_id, prompt.pk])
    reader = signed_in("viewer")
    Membership.objects.update(reads_prompts=True)
    asked = reader.get(address)
    assert (asked.status_code, b"the words" in asked.content) == (200, False)
    assert reader.post(address, {"reason": " "}).status_code == 422
    assert not AuditEntry.objects.exists()
    shown = reader.post(address, {"reason": "complaint 7"})
    assert b"the words" in shown.content
    assert shown["Cache-Control"] == "no-store"
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.reason) == ("read_prompt", "viewer", "complaint 7")


def test_tab_offers_it_only_to_those_who_may(signed_in):
    prompt = make_prompt(make_run())
    tab = reverse("console:run", args=[prompt.run_id]) + "?tab=decisions"
    address = reverse("console:prompt", args=[prompt.run_id, prompt.pk])
    assert address not in signed_in("admin", sees_payloads=True).get(tab).content.decode()
    Membership.objects.filter(user__username="admin").update(reads_prompts=True)
    assert address in signed_in("admin").get(tab).content.decode()


def test_prompt_of_an_unknown_key_says_what_is_missing(signed_in, settings):
    from durableops import sealing

    prompt = make_prompt(make_run())
    reader = signed_in("admin")
    Membership.objects.update(reads_prompts=True)
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key()]
    answer = reader.post(reverse("console:prompt", args=[prompt.run_id, prompt.pk]), {"reason": "x"})
    assert (answer.status_code, b"DURABLEOPS_ENCRYPTION_KEYS" in answer.content) == (500, True)

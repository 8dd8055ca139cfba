"""Bringing a file that a run waits for: the form, the link that works once, and for whom they are."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from runs.models import Artifact, Run, Wait
from tests.factories import make_run, make_wait, now

pytestmark = pytest.mark.usefixtures("media")


@pytest.fixture
def wait() -> Wait:
    run = make_run(state="waiting")
    return make_wait(
        run, kind="file", name="contract", question="The <signed> contract?",
        facts='{"accept":[".pdf"],"max_bytes":10}', expires_at=now() + timedelta(hours=2), on_timeout="cancel",
    )  # fmt: skip


def at(wait: Wait, route: str = "bring_file") -> str:
    return reverse(f"console:{route}", args=[wait.run_id, wait.pk])


def pdf(content: bytes = b"signed", name: str = "c.pdf"):
    return {"file": SimpleUploadedFile(name, content, "application/pdf")}


def state_of(wait: Wait) -> str:
    return str(Run.objects.get(pk=wait.run_id).state)


def test_form_says_what_is_wanted_and_what_happens_when_nobody_brings_it(signed_in, wait):
    page = signed_in("operator").get(at(wait)).content.decode()
    for told in ("The &lt;signed&gt; contract?", ".pdf, at most 10 bytes", "the run is cancelled", 'accept=".pdf"'):
        assert told in page
    assert at(wait) in signed_in("operator").get(reverse("console:run", args=[wait.run_id])).content.decode()


def test_file_that_is_brought_wakes_the_run(signed_in, wait):
    answer = signed_in("operator").post(at(wait), pdf())
    assert (answer.status_code, state_of(wait)) == (302, "queued")
    assert Artifact.objects.get(run=wait.run_id).name == "contract"


@pytest.mark.parametrize(
    ("given", "told"),
    [({}, "Choose a file first"), (pdf(b"x" * 11), "at most 10 bytes"), (pdf(name="c.txt"), "wanted is .pdf")],
)
def test_file_that_does_not_fit_is_refused_with_what_is_wanted(signed_in, wait, given, told):
    for file in given.values():
        file.seek(0)
    answer = signed_in("operator").post(at(wait), given)
    assert (answer.status_code, state_of(wait)) == (422, "waiting")
    assert told in answer.content.decode()


def test_second_file_is_told_who_was_quicker(signed_in, wait):
    signed_in("operator").post(at(wait), pdf())
    answer = signed_in("admin").post(at(wait), pdf(b"other"))
    assert answer.status_code == 409
    assert "is answered by operator" in answer.content.decode()


@pytest.mark.parametrize(("who", "status"), [("viewer", 403), ("reviewer", 403), ("stranger", 404)])
def test_file_is_brought_and_links_are_made_only_by_those_who_may_send(signed_in, wait, who, status):
    browser = signed_in(who)
    assert browser.get(at(wait)).status_code == status
    assert browser.post(at(wait), pdf()).status_code == status
    assert browser.post(at(wait, "upload_link")).status_code == status


def test_link_lets_somebody_without_an_account_bring_it_once(signed_in, wait):
    page = signed_in("operator").post(at(wait, "upload_link")).content.decode()
    found = re.search(r"http://testserver(/bring/[^<]+)<", page)
    assert found is not None
    outside, address = Client(), found[1]
    shown = outside.get(address).content.decode()
    assert "The &lt;signed&gt; contract?" in shown
    assert str(wait.run_id) not in shown
    assert outside.post(address, {}).status_code == 422
    assert "Thank you" in outside.post(address, pdf()).content.decode()
    assert state_of(wait) == "queued"
    again = outside.post(address, pdf(b"other"))
    assert (again.status_code, Artifact.objects.count()) == (410, 1)
    assert "works once" in again.content.decode()
    assert Wait.objects.get().answered_by == "link of operator"


def test_made_up_link_is_no_link():
    assert Client().get(reverse("console:upload", args=["made-up"])).status_code == 404

"""Files of runs on the pages: for whom they are, links that end, and nothing a browser would run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from durableops.artifacts import serving
from durableops.conf import override_conf
from durableops.engine import file_links
from runs.models import AuditEntry, Membership
from tests.factories import make_artifact, make_person, make_run

pytestmark = pytest.mark.usefixtures("media")


def body(answer) -> bytes:
    return b"".join(answer.streaming_content)


def address(artifact, route="artifact"):
    return reverse(f"console:{route}", args=[artifact.run_id, artifact.pk])


def with_right_to_prompts(signed_in, name):
    browser = signed_in(name)
    Membership.objects.filter(user__username=name).update(reads_prompts=True)
    return browser


@pytest.mark.parametrize(
    ("made_for", "viewer", "seer", "prompter"),
    [("members", 200, 200, 200), ("payloads", 403, 200, 403), ("prompts", 403, 403, 200)],
)
def test_a_file_is_read_by_those_it_is_for(signed_in, made_for, viewer, seer, prompter):
    data_class = "temp_file" if made_for == "prompts" else "deliverable"
    artifact = make_artifact(make_run(), readable_by=made_for, data_class=data_class)
    people = {
        viewer: signed_in("viewer"),
        seer: signed_in("operator", sees_payloads=True),
    }
    assert signed_in("viewer").get(address(artifact)).status_code == viewer
    assert people[seer].get(address(artifact)).status_code == seer
    assert with_right_to_prompts(signed_in, "reviewer").get(address(artifact)).status_code == prompter
    assert signed_in("stranger", sees_payloads=True).get(address(artifact)).status_code == 404


def test_no_role_and_no_superuser_reads_what_is_kept_apart(signed_in, admin_user):
    artifact = make_artifact(make_run(), data_class="raw_prompt")
    boss = Client()
    boss.force_login(admin_user)
    assert boss.get(address(artifact)).status_code == 403
    assert signed_in("admin", sees_payloads=True).get(address(artifact)).status_code == 403


def test_every_reading_of_what_is_kept_apart_is_in_the_audit_and_no_other_is(signed_in):
    run = make_run()
    private, open_one = make_artifact(run, data_class="temp_file"), make_artifact(run, readable_by="members")
    browser = with_right_to_prompts(signed_in, "reviewer")
    for artifact in (private, private, open_one):
        assert body(browser.get(address(artifact))) == b"content"
    entries = AuditEntry.objects.filter(verb="read_private_file")
    assert [(one.actor, one.target_id, one.after["file"]) for one in entries] == [
        ("reviewer", str(run.pk), private.name)
    ] * 2


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "nonsense"])
def test_no_browser_runs_a_file(signed_in, kind):
    artifact = make_artifact(make_run(), readable_by="members", content_type=kind, name="../../x<y>.html\u202egpj")
    answer = signed_in("viewer").get(address(artifact))
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer["Content-Security-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("name", "shown"), [("a.csv", "a.csv"), ("out/of/a.csv", "a.csv"), ("..\\..\\a", "a"), ("...", "file"), (".x", "x")]
)
def test_file_is_saved_under_the_last_part_of_its_name(name, shown):
    assert serving.file_name(name) == shown


def test_link_works_for_whoever_holds_it_and_is_in_the_audit(signed_in):
    artifact = make_artifact(make_run())
    answer = signed_in("operator", sees_payloads=True).post(address(artifact, "artifact_link"))
    link = answer.context["address"]
    assert link.startswith("http://testserver/files/")
    assert body(Client().get(link)) == b"content"
    entry = AuditEntry.objects.get(verb="link_file")
    assert (entry.actor, entry.after["sha256"]) == ("operator", artifact.content_hash)
    assert link.rsplit("/", 2)[1] not in str(entry.after)


def test_link_is_not_made_for_those_who_may_not_read(signed_in):
    artifact = make_artifact(make_run())
    assert signed_in("admin").post(address(artifact, "artifact_link")).status_code == 403
    assert not AuditEntry.objects.exists()


def test_link_ends(signed_in):
    artifact = make_artifact(make_run())
    with override_conf(link_seconds=-1.0):
        token = file_links.make(artifact, actor="ann").token
    answer = Client().get(reverse("console:file", args=[token]))
    assert (answer.status_code, b"ask whoever gave it for a new one" in answer.content) == (410, True)


def test_link_of_a_file_that_retention_took_says_so(media):
    artifact = make_artifact(make_run())
    token = file_links.make(artifact, actor="ann").token
    artifact.delete()
    assert Client().get(reverse("console:file", args=[token])).status_code == 410


@pytest.mark.parametrize("change", ["cut", "letter", "junk", "other_salt"])
def test_link_that_was_changed_is_no_link(change):
    from django.core import signing

    artifact = make_artifact(make_run())
    token = file_links.make(artifact, actor="ann").token
    changed = {
        "cut": token[:-3],
        "letter": token[:-1] + ("a" if token[-1] != "a" else "b"),
        "junk": "junk",
        "other_salt": signing.Signer(salt="other").sign_object({"file": artifact.pk, "by": "x", "until": 2**33}),
    }[change]
    assert Client().get(reverse("console:file", args=[changed])).status_code == 404


def test_reading_by_a_link_what_is_kept_apart_is_in_the_audit_with_whose_link_it_was():
    artifact = make_artifact(make_run(), data_class="temp_file")
    token = file_links.make(artifact, actor="ann").token
    assert body(Client().get(reverse("console:file", args=[token]))) == b"content"
    assert AuditEntry.objects.get(verb="read_private_file").actor == "link of ann"


def test_tab_names_files_and_says_who_may_read_them(signed_in):
    run = make_run()
    make_artifact(run, name="for-all.csv", readable_by="members")
    make_artifact(run, name="for-few.csv")
    page = signed_in("viewer").get(reverse("console:run", args=[run.pk]) + "?tab=artifacts").content.decode()
    assert "for-all.csv" in page
    assert "needs somebody who sees payloads of acme" in page
    assert page.count("/link/") == 1


def test_file_of_another_run_is_not_read_through_ones_own(signed_in):
    theirs = make_artifact(make_run(), readable_by="members")
    make_person("stranger")
    from tests.factories import make_tenant

    own = make_run(tenant=make_tenant("other"))
    assert signed_in("stranger").get(reverse("console:artifact", args=[own.pk, theirs.pk])).status_code == 404


def test_link_time_is_a_setting():
    artifact = make_artifact(make_run())
    with override_conf(link_seconds=60.0):
        made = file_links.make(artifact, actor="ann")
    until = made.expires_at - artifact.at
    assert timedelta(seconds=50) < until < timedelta(seconds=70)

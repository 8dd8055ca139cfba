"""Raw prompts and declared secrets: encrypted apart, read by few, and nothing of them anywhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from durableops import Retry, Secret, State, sealing, step, tool, workflow
from durableops.artifacts import storage
from durableops.engine import prompts
from durableops.errors import SealBroken
from durableops.masking import MASK
from durableops.upkeep import loose_files
from durableops.upkeep.resealing import reseal
from runs.models import Artifact, AuditEntry, LooseFile, Prompt, Run, RunEvent
from tests.factories import make_artifact, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Facts(State):
    name: str = ""


def one_step(function, **more):
    made = {"a": step(id="a", retry=AT_ONCE)(function)} | {
        n: step(id=n, retry=AT_ONCE)(f) for n, f in more.items()
    }  # fmt: skip
    workflow(name="one", version=1, state=Facts)(type("One", (), made))


def read(prompt: Prompt, **more: Any) -> str:
    return prompts.read(prompt, tenant=prompt.run.tenant, actor="ann", reason="complaint 7", **more)


def test_prompt_of_a_decision_is_kept_apart_from_it_and_once(engine):
    asked = []

    def model(text: str) -> str:
        asked.append(text)
        return "invoice"

    def a(run: Any):
        found = run.decide("kind", {"text": "x"}, model, prompt=[{"role": "user", "content": "What is x? (geheim9)"}])
        if run.attempt == 1:
            raise ValueError
        return found

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert asked == ["x"]
    prompt = Prompt.objects.get(run=run)
    assert (prompt.name, prompt.step_id) == ("kind", "a")
    assert json.loads(read(prompt)) == [{"role": "user", "content": "What is x? (geheim9)"}]
    assert "geheim9" not in prompt.sealed


def test_prompts_by_name_and_key_travel_with_the_next_commit(engine):
    def a(run: Any):
        run.prompt("plan", "first words", key="1")
        run.prompt("plan", "other words", key="2")
        if run.attempt == 1:
            raise ValueError

    async def b(run: Any):
        run.prompt("plan", {"said": 1})
        await run.decide("d", {}, lambda: 1, prompt="asked")

    one_step(a, b=b)
    run = engine.run("one")
    found = {(one.step_id, one.name, one.author_key): read(one) for one in Prompt.objects.filter(run=run)}
    assert found == {
        ("a", "plan", "1"): "first words",
        ("a", "plan", "2"): "other words",
        ("b", "plan", ""): '{"said": 1}',
        ("b", "d", ""): "asked",
    }


def test_secrets_are_masked_in_a_prompt_before_it_is_encrypted(engine):
    def a(run: Any):
        run.prompt("t", "use Authorization: Bearer geheim12345")
        run.prompt("j", {"password": "geheim1", "n": 1})

    one_step(a)
    engine.run("one")
    texts = [read(one) for one in Prompt.objects.order_by("id")]
    assert not any("geheim" in text for text in texts)
    assert json.loads(texts[1]) == {"password": MASK, "n": 1}


@pytest.mark.parametrize(
    "content", [object(), float("nan"), "a\0", "x" * 1_100_000], ids=["object", "nan", "nul", "long"]
)
def test_prompt_that_cannot_be_kept_fails_the_step_before_the_model_is_asked(engine, content):
    asked = []
    one_step(lambda run: run.decide("d", {}, lambda: asked.append(1), prompt=content))
    run = engine.run("one")
    assert (run.state, run.error_class, asked) == ("failed", "durableops.errors.PayloadRefused", [])


def test_reading_a_prompt_is_an_audit_entry_with_its_reason(engine):
    one_step(lambda run: run.prompt("p", "words"))
    engine.run("one")
    prompt = Prompt.objects.get()
    assert read(prompt) == "words"
    entry = AuditEntry.objects.get(verb="read_prompt")
    assert (entry.actor, entry.reason, entry.target_id) == ("ann", "complaint 7", str(prompt.run_id))
    assert "words" not in json.dumps(entry.after)


def test_prompt_that_cannot_be_opened_leaves_no_entry_of_a_reading(engine, settings):
    one_step(lambda run: run.prompt("p", "words"))
    engine.run("one")
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key()]
    with pytest.raises(SealBroken):
        read(Prompt.objects.get())
    assert not AuditEntry.objects.exists()


def test_reason_a_person_gives_is_masked_before_it_is_stored(engine):
    from durableops.engine import commands

    run = make_run(tenant=engine.tenant)
    commands.pause(run.pk, tenant=run.tenant, actor="ann", reason="password=geheim1 leaked")
    assert "geheim1" not in AuditEntry.objects.get().reason
    assert "geheim1" not in RunEvent.objects.get(run=run, event="pause").reason


def test_what_a_person_decides_about_is_masked_where_it_is_stored(engine):
    one_step(lambda run: run.approval("go", question="with token=geheim1?", facts={"password": "geheim2", "n": 1}))
    run = engine.run("one")
    wait = run.waits.get()
    assert "geheim" not in wait.question + wait.facts
    assert json.loads(wait.facts) == {"password": MASK, "n": 1}


def test_everything_is_encrypted_anew_so_that_the_old_key_can_go(engine, settings):
    old, new = sealing.new_key(), sealing.new_key()
    settings.DURABLEOPS_ENCRYPTION_KEYS = [old]
    one_step(lambda run: run.prompt("p", "words"))
    run = engine.run("one")
    artifact = make_artifact(run, data_class="temp_file", content=b"rows")
    plain = make_artifact(run, content=b"open")
    settings.DURABLEOPS_ENCRYPTION_KEYS = [new, old]
    done = reseal(engine.worker.database)
    assert (done.prompts, done.files, done.left) == (1, 1, 0)
    again = reseal(engine.worker.database)
    assert (again.prompts, again.files) == (0, 0)
    settings.DURABLEOPS_ENCRYPTION_KEYS = [new]
    assert read(Prompt.objects.get()) == "words"
    moved = Artifact.objects.get(pk=artifact.pk)
    assert moved.path != artifact.path
    assert b"".join(storage.read(moved.path, content_hash=moved.content_hash, sealed=True)) == b"rows"
    assert Artifact.objects.get(pk=plain.pk).path == plain.path
    assert LooseFile.objects.get().path == artifact.path
    assert loose_files.remove_some(engine.worker.database) == 1


def test_runs_whose_declared_secrets_need_an_older_key_are_counted(engine, settings, capsys, monkeypatch):
    monkeypatch.setattr("durableops.upkeep.resealing.BATCH", 1)

    class Login(State):
        pin: Secret = ""

    @tool(safety="keyed", secret=("session",))
    def login(call: Any) -> dict[str, str]:
        return {"session": "s-7"}

    def a(run: Any):
        run.call(login, resource="ann")

    workflow(name="in-state", version=1, state=Login)(type("A", (), {"a": step(id="a")(lambda run: None)}))
    workflow(name="in-result", version=1, state=Facts)(type("B", (), {"a": step(id="a")(a)}))
    old, new = sealing.new_key(), sealing.new_key()
    settings.DURABLEOPS_ENCRYPTION_KEYS = [old]
    older = [engine.run("in-state", {"pin": "4711"}), engine.run("in-result")]
    settings.DURABLEOPS_ENCRYPTION_KEYS = [new, old]
    assert engine.run("in-state", {"pin": "4712"}).state == "succeeded"

    done = reseal(engine.worker.database)
    assert (done.left, done.runs) == (0, 2)
    assert done.sample == sorted(str(run.pk) for run in older)
    call_command("reencrypt")
    assert "2 runs hold declared secrets under an older key" in capsys.readouterr().out


def test_encrypting_anew_without_the_old_key_changes_nothing(engine, settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key()]
    one_step(lambda run: run.prompt("p", "words"))
    engine.run("one")
    before = Prompt.objects.get()
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key()]
    with pytest.raises(SealBroken):
        reseal(engine.worker.database)
    assert Prompt.objects.get().sealed == before.sealed


def test_file_that_was_removed_meanwhile_is_not_named_again(engine, settings, monkeypatch):
    artifact = make_artifact(make_run(tenant=engine.tenant), data_class="temp_file")
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key(), sealing.keys()[0]]
    real = storage.write

    def slow(path: str, data: Any, *, sealed: bool = False) -> Any:
        stored = real(path, data, sealed=sealed)
        Artifact.objects.all().delete()
        return stored

    monkeypatch.setattr(storage, "write", slow)
    assert reseal(engine.worker.database).files == 0
    assert LooseFile.objects.get(doomed=True).path != artifact.path
    assert Run.objects.exists()

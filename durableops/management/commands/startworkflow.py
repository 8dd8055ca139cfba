"""`manage.py startworkflow NAME`: write an app with a first workflow, a tool and a test that passes as written."""

from __future__ import annotations

import keyword
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.authoring import registry

TEMPLATES = Path(__file__).resolve().parent.parent / "app_template"
SUFFIX = "-tpl"
LONGEST_NAME = 50


class Command(BaseCommand):
    help = "Write an app folder with a workflow, a tool and their test, which passes as written."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the app and its folder, such as order_intake")

    def handle(self, *args: Any, **options: Any) -> None:
        name: str = options["name"]
        folder = Path.cwd() / name
        if problem := what_speaks_against(name, folder):
            raise CommandError(problem)
        write_app(name, folder)
        self.stdout.write(next_steps(name, folder))


def what_speaks_against(name: str, folder: Path) -> str:
    """One sentence about a name that cannot be used here; empty if it can."""
    if not (name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= LONGEST_NAME):
        return f"{name!r} cannot name an app: give lower-case letters, digits and '_', at most {LONGEST_NAME}."
    if name.startswith("_") or name.endswith("_"):
        return f"{name!r} begins or ends with '_': give a name without."
    if keyword.iskeyword(name):
        return f"{name!r} is a word of Python: give another name."
    if folder.exists():
        return f"{folder} exists already: give another name, or remove it."
    if find_spec(name) is not None or any(app.label == name for app in apps.get_app_configs()):
        return f"{name!r} is the name of an installed module: the app would hide it, so give another name."
    if registry.versions(workflow_name(name)):
        return f"there is a workflow {workflow_name(name)!r} already: give another name."
    return ""


def workflow_name(name: str) -> str:
    """The workflow's name, as people write it."""
    return name.replace("_", "-")


def write_app(name: str, folder: Path) -> None:
    """Write every template into the new folder."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    imports = [
        "durableops.testing import approve, refuse, run_workflow",
        f"{name}.workflows import URL_VARIABLE, {camel}",
    ]
    words = {
        "name": name,
        "camel": camel,
        "constant": name.upper(),
        "workflow": workflow_name(name),
        "imports": "\n".join(f"from {each}" for each in sorted(imports)),
    }
    folder.mkdir()
    for template in sorted(TEMPLATES.glob(f"*{SUFFIX}")):
        text = Template(template.read_text(encoding="utf-8")).substitute(words)
        (folder / template.name.removesuffix(SUFFIX)).write_text(text, encoding="utf-8")


def next_steps(name: str, folder: Path) -> str:
    """What to do next, as commands that work where the app was written."""
    loaded = [app for app in os.environ.get("DURABLEOPS_APPS", "").split(",") if app]
    manage = f"DURABLEOPS_APPS={','.join([*loaded, name])}"
    if folder.parent == settings.BASE_DIR:
        test = f"make test ARGS={name}"
        manage += " .venv/bin/python manage.py"
    else:
        # Elsewhere nothing finds the app, the settings or the role that may create a database by itself.
        path = "PYTHONPATH=" + shlex.quote(os.pathsep.join([str(folder.parent), str(settings.BASE_DIR)]))
        python = shlex.quote(sys.executable)
        options = "--import-mode=importlib --ds=durableops.settings"
        test = f"DURABLEOPS_DATABASE_ROLE=owner {path} {python} -m pytest {options} {shlex.quote(str(folder))}"
        manage += f" {path} {python} {shlex.quote(str(settings.BASE_DIR / 'manage.py'))}"
    return "\n".join(
        [
            f"Wrote {folder}: workflows.py with the workflow {workflow_name(name)!r}, and test_workflows.py.",
            "Next, its test, the tables, a worker (and, beside it, `upkeep`), a run, and the approval it asks for:",
            f"  {test}",
            f"  {manage} migrate",
            f"  {manage} worker",
            f'  echo \'{{"name": "Ada"}}\' | {manage} start {workflow_name(name)} --input -',
            f"  {manage} operate approve RUN --reason 'reads well'",
            f"Its last step posts to the address in {name.upper()}_URL: give it to the worker, or that step fails.",
        ]
    )

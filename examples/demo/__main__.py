"""`python -m examples.demo`: set up, play the story, say how it ended. Exit 0 only if nothing happened twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

import django

from durableops.errors import DurableOpsError, InputRefused
from examples.batch_import.source import Source, open_source
from examples.demo.narrate import Narrator
from examples.demo.options import Options, make_folder, read_options, set_environment
from examples.demo.stage import Stage, StageError, only_one, set_stage

USER, PASSWORD = "demo", "demo-for-this-machine"


def main() -> int:
    """Play the demo once."""
    narrator = Narrator()
    options = read_options(os.environ)
    try:
        source = open_source(options.csv, options.choices)
        with only_one(options.home):
            make_folder(options.folder)
            set_environment(options.folder)
            django.setup()
            return play(options, source, narrator)
    except (DurableOpsError, StageError) as problem:
        kind = "refused" if isinstance(problem, InputRefused) else "error"
        narrator.plain(str(problem))
        if options.once:
            narrator.last_line({"state": kind, "error": str(problem)})
        return 2
    except KeyboardInterrupt:
        narrator.plain("stopped; the runs stay where they are")
        return 130


def play(options: Options, source: Source, narrator: Narrator) -> int:
    """Everything that needs Django."""
    # Models can be imported only now that the environment names the database.
    from examples.demo import record
    from examples.demo.story import Story

    narrator.tell(f"logs and data: {options.folder}")
    with set_stage(options) as stage:
        if stage.console:
            record.sign_in(USER, PASSWORD)
            narrator.plain(f"\n  Console   {stage.console}\n  Sign in   {USER}  /  {PASSWORD}\n")
        report = Story(stage, options, narrator).play(source)
        if options.once:
            narrator.last_line(report)
        else:
            stay_up(stage, narrator)
    return 0 if report["state"] == "succeeded" and report["clean"] else 1


def stay_up(stage: Stage, narrator: Narrator) -> None:
    """Leave everything running until the person has seen enough."""
    narrator.plain(f"\nEverything stays up{': ' if stage.console else ''}{stage.console}  Ctrl-C stops it.")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(1.0)
            stage.troupe.look_after()


def _stop_politely(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Said for SIGINT too: a shell that starts us in the background has it ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop_politely)
    sys.exit(main())

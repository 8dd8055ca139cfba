"""`manage.py reencrypt`: everything that is encrypted, anew with the newest key. The work is in `upkeep.resealing`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops import sealing
from durableops.engine.database import Database
from durableops.errors import DurableOpsError
from durableops.upkeep.resealing import reseal


class Command(BaseCommand):
    help = "Encrypt raw prompts, private files and webhook secrets anew with the first of DURABLEOPS_ENCRYPTION_KEYS."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--new-key", action="store_true", help="only print a new key")
        parser.add_argument("--json", action="store_true", help="print exactly one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["new_key"]:
            key = sealing.new_key()
            self.stdout.write(json.dumps({"key": key}) if options["json"] else key)
            return
        database = Database(name="reencrypt")
        try:
            done = reseal(database)
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        finally:
            database.close()
        if options["json"]:
            self.stdout.write(json.dumps(asdict(done)))
        else:
            self.stdout.write(
                f"{done.prompts} prompts, {done.files} files and the secrets of {done.endpoints} webhook endpoints "
                f"were encrypted anew; {done.left} are left under an older key."
            )
            if done.runs:
                self.stdout.write(
                    f"{done.runs} runs hold declared secrets under an older key, such as {', '.join(done.sample)}: "
                    "keep that key until retention has removed them."
                )

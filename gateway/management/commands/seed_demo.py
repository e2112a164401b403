"""`manage.py seed_demo`: what `make run` shows. The only line on stdout is one JSON object."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.catalog.entries import CatalogMistakes
from gateway.demo import CATALOG, OWNER_EMAIL, STAFF_EMAIL, Demo, Login, seed


class Command(BaseCommand):
    help = "Make the demo's catalog, tenant, people, keys and money; again and again is once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--state", type=Path, required=True, help="file that keeps its secrets")
        parser.add_argument("--benchecho-url", required=True, help="benchecho's base URL, with /v1")
        parser.add_argument("--catalog", type=Path, help="applied instead of the demo's own")

    def handle(self, *_args: Any, **options: Any) -> None:
        state: Path = options["state"]
        try:
            demo = seed(
                read_state(state),
                benchecho_url=options["benchecho_url"],
                catalog=options["catalog"],
                say=self.stderr.write,
            )
            text = json.dumps(asdict(demo))
            write_private(state, text)
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}.") from error
        except CatalogMistakes as mistakes:
            raise CommandError(
                f"{options['catalog'] or CATALOG} was not applied.\n{mistakes}"
            ) from mistakes
        self.stdout.write(text)


def read_state(path: Path) -> Demo:
    """What an earlier run wrote. Raises CommandError where that is not what we write."""
    try:
        found = json.loads(path.read_bytes())
        return Demo(
            api_key=str(found["api_key"]),
            test_key=str(found["test_key"]),
            tenant=_login(found["tenant"]),
            staff=_login(found["staff"]),
        )
    except FileNotFoundError:
        return Demo(tenant=Login(OWNER_EMAIL, ""), staff=Login(STAFF_EMAIL, ""))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} is broken; remove it, and the demo gets new keys and passwords."
        ) from error


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
    temporary.replace(path)


def _login(found: Mapping[str, Any]) -> Login:
    return Login(str(found["email"]), str(found["password"]))

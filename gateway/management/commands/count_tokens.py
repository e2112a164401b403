"""`manage.py count_tokens --model M FILE`: what a prompt counts, and how sure that is."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.estimation import count_prompt
from billing.estimation.estimates import Count
from gateway.errors import ApiError
from gateway.models import Model
from gateway.relay.request import read_request


class Command(BaseCommand):
    help = (
        "Count the tokens of a file: a chat-completion body in JSON, or else a text, which is "
        "counted as the one message of a user."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="`-` reads standard input")
        parser.add_argument(
            "--model", required=True, metavar="M", help="a model of the catalog, or a vendor's name"
        )
        parser.add_argument("--json", action="store_true", help="print every field as JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        name, family = _counted_as(options["model"])
        counted = count_prompt(_body(options["file"], name), model=name, family=family)
        if options["json"]:
            self.stdout.write(json.dumps(asdict(counted), default=str, indent=2))
        else:
            self._print(counted)

    def _print(self, counted: Count) -> None:
        for title, value in (
            ("tokens", f"{counted.tokens:,}"),
            ("method", counted.method),
            ("family", counted.family),
            ("vocabulary", f"{counted.vocabulary} ({counted.vocabulary_sha256[:12]}…)"),
            ("rules", counted.rule_version),
            ("flags", ", ".join(counted.flags) or "none"),
        ):
            self.stdout.write(f"{title:<12}{value}")
        self.stdout.write(counted.sentence())


def _counted_as(name: str) -> tuple[str, str | None]:
    """The vendor's name and the family of the model's first route, where the catalog has it."""
    model = Model.objects.filter(name=name).first()
    route = None if model is None else model.first_route()
    if model is None or route is None:
        return name, None
    return route.vendor_model, route.family or model.family


def _body(path: str, model: str) -> dict[str, Any]:
    """Raises CommandError."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}.") from error
    parsed = _json(content)
    if not isinstance(parsed, dict):
        text = content.decode("utf-8", "surrogateescape")
        return {"messages": [{"role": "user", "content": text}]}
    try:
        return read_request(json.dumps({"model": model, **parsed}).encode()).payload
    except ApiError as error:
        raise CommandError(error.message) from error


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None

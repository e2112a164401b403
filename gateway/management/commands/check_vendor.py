"""`manage.py check_vendor VENDOR`: run the qualification checks and write their report."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.estimation import UnknownFamilyError, check_family
from gateway.models import KEYLESS, Vendor
from gateway.qualification.bounds import DEFAULT_BOUNDS
from gateway.qualification.checks import Subject
from gateway.qualification.gate import admission, state_of
from gateway.qualification.owned import OwnedServer, ServerDidNotStartError, owned_server
from gateway.qualification.report import Labels, report_of
from gateway.qualification.run import Outcome, check_vendor
from gateway.qualification.standing import keep, subjects_of
from gateway.runtime.snapshot import access_of
from gateway.upstream.request import Origin

WORDS = {True: "passed", False: "FAILED", None: "not probed"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Who is checked, where, and whether that is kept."""

    vendor: Vendor
    subjects: list[Subject]
    base_url: str
    is_kept: bool


class Command(BaseCommand):
    help = "Check what a vendor does, model by model, and write a report (docs/vendors.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("vendor", help="its name in the catalog; with --no-store, any name")
        parser.add_argument(
            "--model",
            action="append",
            default=[],
            help="the vendor's name for a model; may be repeated; all of its routes by default",
        )
        parser.add_argument("--family", help="how the models' tokens are counted")
        parser.add_argument("--key", default="", help="the report's key; by default the model")
        parser.add_argument("--backend", default="", help="for the report: the machine")
        parser.add_argument("--runtime", default="", help="for the report: the server's software")
        parser.add_argument("--spawn", metavar="CMD", help="start this server, and stop it after")
        parser.add_argument("--spawn-url", metavar="URL", help="where it answers, with its /v1")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write the report here")
        parser.add_argument("--no-store", action="store_true", help="keep nothing in the database")

    def handle(self, *_args: Any, **options: Any) -> None:
        plan = plan_of(options)
        labels = Labels(options["key"], options["backend"], options["runtime"])
        try:
            with spawned(options["spawn"], plan.base_url) as server:
                outcomes = [self._check(plan, subject) for subject in plan.subjects]
        except ServerDidNotStartError as error:
            raise CommandError(str(error)) from error
        is_stopped = None if server is None else server.is_stopped
        reports = [
            report_of(
                outcome,
                labels,
                credential=plan.vendor.credential.strip(),
                owned_server_stopped=is_stopped,
            )
            for outcome in outcomes
        ]
        self._finish(plan, outcomes, reports, options["out"])

    def _check(self, plan: Plan, subject: Subject) -> Outcome:
        access = replace(access_of(plan.vendor), base_url=plan.base_url)
        outcome = check_vendor(access, subject, bounds=DEFAULT_BOUNDS)
        self.stdout.write(f"{plan.vendor.name} {subject.model}: {WORDS[outcome.passed]}")
        for result in outcome.results:
            reason = result.evidence.finding.reason
            because = f" ({reason})" if reason else ""
            self.stdout.write(f"  {result.check.id:<14} {WORDS[result.passed]}{because}")
        return outcome

    def _finish(
        self,
        plan: Plan,
        outcomes: list[Outcome],
        reports: list[dict[str, Any]],
        path: Path | None,
    ) -> None:
        """One report is an object, several are a list of them."""
        if path is not None:
            try:
                path.write_text(
                    json.dumps(
                        reports[0] if len(reports) == 1 else reports, indent=2, ensure_ascii=False
                    )
                    + "\n"
                )
            except OSError as error:
                raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
        if plan.is_kept:
            for outcome, report in zip(outcomes, reports, strict=True):
                keep(plan.vendor, outcome, report)
            plan.vendor.refresh_from_db()
            self.stdout.write(
                f"{plan.vendor.name} is {state_of(plan.vendor)}. {admission(plan.vendor).reason}"
            )
        if any(outcome.passed is False for outcome in outcomes):
            raise CommandError("Some checks failed.")


def plan_of(options: dict[str, Any]) -> Plan:
    """Raises CommandError for options that do not fit together."""
    name, url, is_kept = options["vendor"], options["spawn_url"], not options["no_store"]
    if options["spawn"] and not url:
        raise CommandError("--spawn needs --spawn-url: where the server will answer.")
    vendor = Vendor.objects.filter(name=name).first() if is_kept or not url else None
    if vendor is None and (is_kept or not url):
        raise CommandError(
            f"There is no vendor {name!r}; with --spawn-url and --no-store, none is needed."
        )
    vendor = vendor or Vendor(name=name, base_url=url, credential=KEYLESS)
    base_url = (url or vendor.base_url).rstrip("/")
    try:
        Origin.from_base_url(base_url)
    except ValueError as error:
        raise CommandError(f"{base_url!r} is no base URL: {error}.") from error
    return Plan(vendor, _subjects(vendor, options), base_url, is_kept)


def _subjects(vendor: Vendor, options: dict[str, Any]) -> list[Subject]:
    family = options["family"]
    if family is not None:
        try:
            check_family(family)
        except UnknownFamilyError as error:
            raise CommandError(f"{error}.") from error
    known = {subject.model: subject for subject in subjects_of(vendor)} if vendor.pk else {}
    wanted = options["model"] or list(known)
    if not wanted:
        raise CommandError(f"No route names a model of {vendor.name}; name one with --model.")
    subjects = (known.get(model, Subject(model)) for model in wanted)
    return [replace(s, family=family) if family else s for s in subjects]


@contextmanager
def spawned(command: str | None, base_url: str) -> Iterator[OwnedServer | None]:
    if command is None:
        yield None
        return
    with owned_server(command, base_url) as server:
        yield server

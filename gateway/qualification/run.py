"""One run: all checks of one model at one address, within their bounds."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from billing.estimation.reading import read_choices
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds
from gateway.qualification.checks import CHECKS, Check, Subject
from gateway.qualification.findings import Evidence, undecided
from gateway.qualification.probe import Prober
from gateway.runtime.snapshot import RouteTo, VendorAccess


@dataclass(frozen=True, slots=True)
class Result:
    check: Check
    evidence: Evidence

    @property
    def passed(self) -> bool | None:
        return self.evidence.finding.passed


@dataclass(frozen=True, slots=True)
class Outcome:
    """`server` is what the vendor calls itself, `spent_tokens` what it cost there."""

    subject: Subject
    base_url: str
    results: tuple[Result, ...]
    started_at: datetime
    finished_at: datetime
    spent_tokens: int
    server: str

    @property
    def passed(self) -> bool | None:
        """False where a check failed, None where one that must pass could not be made."""
        return verdict(self.results)

    @property
    def thinks(self) -> bool:
        """Whether any answer came with reasoning."""
        return any(_reasoned(result.evidence.response) for result in self.results)


def verdict(results: Iterable[Result]) -> bool | None:
    results = tuple(results)
    if any(result.passed is False for result in results):
        return False
    must = [result.passed for result in results if result.check.is_required]
    return True if must and all(must) else None


def check_vendor(
    vendor: VendorAccess,
    subject: Subject,
    *,
    bounds: Bounds = DEFAULT_BOUNDS,
    checks: Sequence[Check] = CHECKS,
) -> Outcome:
    """Ask the vendor. Blocks for `bounds.run_s` at most; needs no database."""
    route = RouteTo(vendor, subject.model, subject.family, priority=0, weight=1)
    return asyncio.run(_run(route, subject, bounds, checks))


async def _run(
    route: RouteTo, subject: Subject, bounds: Bounds, checks: Sequence[Check]
) -> Outcome:
    started_at = timezone.now()
    deadline_s = asyncio.get_running_loop().time() + bounds.run_s
    prober = Prober(route, bounds)
    try:
        results = [
            Result(check, await _made(check, prober, subject, deadline_s)) for check in checks
        ]
    finally:
        await prober.close()
    return Outcome(
        subject=subject,
        base_url=route.vendor.base_url,
        results=tuple(results),
        started_at=started_at,
        finished_at=timezone.now(),
        spent_tokens=prober.spent_tokens,
        server=prober.server,
    )


async def _made(check: Check, prober: Prober, subject: Subject, deadline_s: float) -> Evidence:
    try:
        async with asyncio.timeout_at(deadline_s):
            return await check.make(prober, subject)
    except TimeoutError:
        return Evidence(undecided(f"the run's bound of {prober.bounds.run_s:g} s is reached"), None)


def _reasoned(response: Any) -> bool:
    completion = response if isinstance(response, dict) else None
    return any(choice.reasoning for choice in read_choices(completion, None))

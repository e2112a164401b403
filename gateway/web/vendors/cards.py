"""A vendor as the operator's pages show it. Its credential is not among what they are given."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.exchanges.vendor_health import VendorHealth, vendor_health
from gateway.models import KEYLESS, CheckJob, Qualification, Route, Vendor, VendorCheck
from gateway.qualification.asking import latest_jobs
from gateway.qualification.bounds import DEFAULT_BOUNDS
from gateway.qualification.cost import DAY_TOKENS, spent_by_vendor
from gateway.qualification.gate import VendorState, admission, state_of
from gateway.qualification.standing import latest_checks
from gateway.web.vendors.breaking import BreakerLine, breakers_by_vendor

VERDICTS = {True: "passed", False: "failed", None: "undecided"}
OVERDUE_AFTER = timedelta(minutes=10)
NO_CALLS = VendorHealth(calls=0, failed=0, first_byte_ms=None)


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A vendor's model and the public names that lead to it.

    Its last check, and what became of the last one that somebody asked for, are None where there
    is none. `is_overdue`: somebody asked long ago, and it is not over; asking again does no harm.
    """

    name: str
    public_names: tuple[str, ...]
    check: VendorCheck | None
    job: CheckJob | None
    is_overdue: bool

    @property
    def state(self) -> str:
        return "unchecked" if self.check is None else VERDICTS[self.check.passed]

    @property
    def checked_at(self) -> datetime | None:
        return None if self.check is None else self.check.finished_at

    @property
    def check_tokens(self) -> int | None:
        return None if self.check is None else self.check.spent_tokens

    @property
    def progress(self) -> str:
        """A state of the design system; empty where nobody waits for a check."""
        if self.job is None or self.job.finished_at is not None:
            return ""
        return "queued" if self.job.started_at is None else "running"

    @property
    def asked_by(self) -> str:
        """Who asked for the last check; empty where it was made by the schedule or a command."""
        job, check = self.job, self.check
        if job is None or check is None or job.started_at is None or job.finished_at is None:
            return ""
        is_of_job = job.started_at <= check.started_at and check.finished_at <= job.finished_at
        return job.asked_by if is_of_job else ""

    @property
    def may_be_checked(self) -> bool:
        return bool(self.public_names) and (self.is_overdue or not self.progress)


@dataclass(frozen=True, slots=True)
class Card:
    """`spent_tokens` is what its checks of the last 24 hours have cost."""

    vendor: Vendor
    models: tuple[ModelLine, ...]
    health: VendorHealth
    spent_tokens: int
    breakers: tuple[BreakerLine, ...] = ()

    @property
    def name(self) -> str:
        return self.vendor.name

    @property
    def base_url(self) -> str:
        return self.vendor.base_url

    @property
    def state(self) -> str:
        """A state of the design system."""
        if not self.vendor.is_active:
            return "gone"
        state = state_of(self.vendor)
        if state is not VendorState.UNQUALIFIED:
            return str(state)
        if self.vendor.override_reason:
            return "let_in"
        is_waived = self.vendor.qualification == Qualification.WAIVED
        return "waived" if is_waived else str(state)

    @property
    def is_live(self) -> bool:
        return self.vendor.is_active and admission(self.vendor).is_open

    @property
    def why(self) -> str:
        """What stands behind its state, in a few words."""
        vendor = self.vendor
        return {
            "gone": "",
            "disabled": vendor.disabled_reason,
            "qualified": "its checks passed",
            "let_in": f"not qualified; {vendor.override_reason}",
            "waived": f"need not qualify; {vendor.waiver_reason}",
        }.get(self.state, "must qualify, and its checks have not passed")

    @property
    def has_moved(self) -> bool:
        """Whether it passed at an address that is not its present one."""
        passed_at = self.vendor.qualified_base_url
        return bool(passed_at) and passed_at != self.vendor.base_url

    @property
    def must_qualify(self) -> bool:
        return self.vendor.qualification == Qualification.REQUIRED

    @property
    def credential(self) -> str:
        """Whether there is one, never what it is."""
        stored = self.vendor.credential.strip()
        if stored == KEYLESS:
            return "none wanted"
        return "set, encrypted" if stored else "none set"

    @property
    def day_tokens(self) -> int:
        return DAY_TOKENS

    @property
    def may_check(self) -> bool:
        """Whether one more check of any model keeps it within its daily cost."""
        return self.vendor.is_active and self.spent_tokens + DEFAULT_BOUNDS.tokens <= DAY_TOKENS

    @property
    def is_waiting(self) -> bool:
        """Whether something is about to change by itself."""
        return any(model.progress and not model.is_overdue for model in self.models)

    @property
    def attention(self) -> int:
        """How many of the last checks of its models in use have failed."""
        return sum(bool(model.public_names) and model.state == "failed" for model in self.models)


def cards_of(vendors: Sequence[Vendor], now: datetime) -> list[Card]:
    """In the order of the vendors; seven queries, however many they are."""
    names: dict[int, dict[str, list[str]]] = {vendor.pk: {} for vendor in vendors}
    routes = Route.objects.filter(vendor__in=vendors, model__is_active=True)
    pairs = routes.order_by("vendor_model", "model__name")
    for pk, vendor_model, public in pairs.values_list("vendor_id", "vendor_model", "model__name"):
        names[pk].setdefault(vendor_model, []).append(public)
    checks = {(check.vendor_id, check.vendor_model): check for check in latest_checks(*vendors)}
    for pk, vendor_model in checks:
        names[pk].setdefault(vendor_model, [])
    jobs = {(job.vendor_id, job.vendor_model): job for job in latest_jobs(vendors)}
    health = vendor_health(now)
    breakers = breakers_by_vendor(now)
    spent = spent_by_vendor(vendors, now)

    def line(pk: int, model: str, public: list[str]) -> ModelLine:
        job = jobs.get((pk, model))
        asked_at = job.asked_at if job is not None and job.finished_at is None else now
        is_overdue = asked_at < now - OVERDUE_AFTER
        return ModelLine(model, tuple(public), checks.get((pk, model)), job, is_overdue)

    return [
        Card(
            vendor,
            tuple(line(vendor.pk, *named) for named in names[vendor.pk].items()),
            health.get(vendor.name, NO_CALLS),
            spent.get(vendor.pk, 0),
            breakers.get(vendor.pk, ()),
        )
        for vendor in vendors
    ]

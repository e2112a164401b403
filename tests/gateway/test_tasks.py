"""Every Celery task, delivered twice or in any order, changes nothing that once did not.

The tasks are those that are registered: a new one fails here until it has its case.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.apps import apps
from django.db import connection, transaction
from django.utils import timezone

from billing.audit import audit
from billing.credits import grant_credit
from billing.ids import new_exchange_id
from billing.limits import set_limit
from billing.models import (
    Account,
    Adjustment,
    AuditRun,
    Charge,
    CloseRun,
    CountComparison,
    EstimateJob,
    Exchange,
    GatewayProcess,
    Invoice,
    LateSettlement,
    LimitPeriod,
    Message,
    StaffNotice,
)
from billing.processes import SWEEP_PROCESS
from billing.usage import Usage
from gateway.celery import app
from gateway.models import (
    CheckJob,
    IdempotentRequest,
    Model,
    Qualification,
    Route,
    Transcript,
    Vendor,
    VendorCheck,
)
from gateway.qualification.asking import ask
from tests.billing.acts import settle
from tests.gateway.exchanges.made import FIXED_ANSWER, a_stream, record
from tests.gateway.exchanges.uncounted import Ground
from tests.web.relayed import id_at

pytestmark = pytest.mark.django_db

ORDERS = 4
# What is written for every run, on purpose: when it was, and what it found.
RUNS = {AuditRun, CloseRun, GatewayProcess}


class Books(Ground):
    """One tenant with something to do for every task."""

    def __init__(self, world) -> None:
        super().__init__(world)
        self.set_limit()
        self.waits = self.waiting()
        self.dead = self.opened(process_id=2_000_000_000)
        self.cut = self.opened(process_id=2_000_000_000)
        answer = a_stream(FIXED_ANSWER).partition(b"[DONE]")[0]
        self.kept(self.cut, is_ready=False, answer=answer, facts={"outcome": "gateway_died"})
        self.late = self.opened()
        settle(self.late, 0, outcome="gateway_died", usage=Usage(), usage_source="none")
        settle(self.late, 700)
        self.credit_that_expires()
        self.last_months_exchange()
        self.counted_by_its_vendor()
        self.asked = ask(Vendor.objects.get(name="unreachable"), "v", actor="tests")
        IdempotentRequest.objects.create(
            tenant_id=self.tenant.pk,
            key="old",
            body_sha256=b"0" * 32,
            exchange_id=new_exchange_id(),
            created_at=timezone.now() - timedelta(days=2),
        )
        self.old = Transcript.objects.create(
            tenant_id=self.tenant.pk, exchange_id=id_at(timezone.now() - timedelta(days=800))
        )

    def set_limit(self) -> None:
        set_limit(self.tenant, LimitPeriod.DAY, 10_000_000, actor="tests")

    def credit_that_expires(self) -> None:
        expires_at = timezone.now() + timedelta(hours=1)
        grant_credit(self.tenant, 500, grant_id=self.tenant.slug, expires_at=expires_at, actor="t")
        Account.objects.filter(tenant=self.tenant, kind="credit").update(
            expires_at=timezone.now() - timedelta(minutes=1)
        )

    def last_months_exchange(self) -> None:
        moment = timezone.now().replace(day=1) - timedelta(days=3)
        hold = self.opened(exchange_id=id_at(moment), created_at=moment)
        self.maker.settled(hold, usage=Usage(input_tokens=5, output_tokens=7))

    def counted_by_its_vendor(self) -> None:
        exchange = self.maker.settled(self.opened(), usage=Usage(input_tokens=30, output_tokens=65))
        record(exchange, answer=a_stream(FIXED_ANSWER))

    def state(self) -> dict[str, Any]:
        """What its people would call the facts, apart from times and numbers of rows."""
        mine = {"tenant_id": self.tenant.pk}
        charges = Charge.objects.filter(**mine).order_by("charge_nanos", "outcome")
        accounts = Account.objects.filter(**mine).order_by("kind")
        messages = Message.objects.filter(**mine).order_by("user_message")
        return {
            "accounts": list(accounts.values_list("kind", "posted_nanos", "held_nanos")),
            "charges": list(charges.values_list("charge_nanos", "outcome", "usage_source")),
            "open": Exchange.objects.filter(**mine).exclude(state="settled").count(),
            "jobs": EstimateJob.objects.count(),
            "late": list(LateSettlement.objects.filter(**mine).values_list("moved_nanos")),
            "adjustments": list(Adjustment.objects.filter(**mine).values_list("amount_nanos")),
            "messages": list(messages.values_list("user_message", "count", "total_nanos")),
            "notices": list(StaffNotice.objects.order_by("kind").values_list("kind")),
            "invoices": list(Invoice.objects.filter(**mine).values_list("state", "exchange_count")),
            "claims": IdempotentRequest.objects.filter(**mine).count(),
        }


def _settled(hold: Any) -> bool:
    return Exchange.objects.get(id=hold.exchange_id).state == "settled"


def _in_mid_month() -> AbstractContextManager[Any]:
    """When the month before is over for everybody, and the grace too."""
    today = datetime.now(UTC)
    return time_machine.travel(today.replace(day=max(today.day, 5)), tick=True)


def _tomorrow() -> AbstractContextManager[Any]:
    return time_machine.travel(datetime.now(UTC) + timedelta(days=1), tick=True)


@dataclass(frozen=True)
class Case:
    """`done` says that one delivery did its work: without that, two would prove nothing."""

    done: Callable[[Books], bool]
    arguments: Callable[[Books], tuple[Any, ...]] = field(default=lambda _books: ())
    moment: Callable[[], AbstractContextManager[Any]] = nullcontext


CASES = {
    "gateway.estimate_exchange": Case(
        lambda books: _settled(books.waits), lambda books: (str(books.waits.exchange_id),)
    ),
    "gateway.sweep": Case(lambda books: _settled(books.dead) and _settled(books.cut)),
    "gateway.sweep_money": Case(
        lambda _books: not LateSettlement.objects.filter(corrected_at=None).exists()
    ),
    "gateway.make_partitions": Case(
        lambda _books: "billing_charge" in connection.introspection.table_names()
    ),
    "gateway.recheck_vendors": Case(lambda _books: VendorCheck.objects.exists()),
    "gateway.check_vendor": Case(
        lambda _books: CheckJob.objects.get().finished_at is not None,
        lambda books: (books.asked.pk,),
    ),
    "gateway.forget": Case(lambda _books: not IdempotentRequest.objects.exists()),
    "gateway.forget_transcripts": Case(
        lambda books: not Transcript.objects.filter(pk=books.old.pk).exists()
    ),
    "gateway.compare_counts": Case(
        lambda _books: CountComparison.objects.exists(), moment=_tomorrow
    ),
    "gateway.close_months": Case(
        lambda books: Invoice.objects.filter(tenant=books.tenant).exists(), moment=_in_mid_month
    ),
    "gateway.audit": Case(lambda _books: AuditRun.objects.exists()),
}


def deliver(name: str, books: Books) -> None:
    case = CASES[name]
    with case.moment():
        app.tasks[name].apply(case.arguments(books), throw=True)


def fingerprints() -> dict[str, tuple[int, Any]]:
    """All rows of all our tables, each table as a count and a hash."""
    tables = {
        model._meta.db_table
        for name in ("keys", "billing", "gateway")
        for model in apps.get_app_config(name).get_models()
        if model not in RUNS
    }
    found = {}
    with connection.cursor() as cursor:
        for table in sorted(tables):
            cursor.execute(
                f"SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM {table} t"
            )
            found[table] = cursor.fetchone()
    return found


@pytest.fixture
def books(world, settings) -> Books:
    settings.GATEWAY_DEAD_AFTER_S = 1
    now = timezone.now()
    GatewayProcess.objects.update_or_create(
        pk=SWEEP_PROCESS,
        defaults={"name": "sweep", "started_at": now - timedelta(minutes=1), "seen_at": now},
    )
    vendor = Vendor.objects.create(
        name="unreachable",
        base_url="http://127.0.0.1:1/v1",
        qualification=Qualification.REQUIRED,
        created_at=now - timedelta(days=3),
    )
    Route.objects.create(model=Model.objects.create(name="m"), vendor=vendor, vendor_model="v")
    return Books(world)


def test_every_task_has_its_case() -> None:
    app.loader.import_default_modules()
    ours = {name for name in app.tasks if not name.startswith("celery.")}
    assert ours == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_task_that_is_delivered_again_changes_nothing(books: Books, name: str) -> None:
    deliver(name, books)
    assert CASES[name].done(books)
    before = fingerprints()

    deliver(name, books)
    deliver(name, books)

    assert fingerprints() == before
    assert audit().differences == ()


def test_in_any_order_and_twice_the_end_is_the_same(books: Books) -> None:
    def end_of(order: list[str]) -> dict[str, Any]:
        """Each once more at the end, in one order: what came too early has its turn again."""
        with transaction.atomic():
            for name in (*order, *CASES):
                deliver(name, books)
            assert audit().differences == ()
            end = books.state()
            transaction.set_rollback(True)
        return end

    once = end_of([])
    assert (once["open"], once["jobs"], once["claims"]) == (0, 0, 0)
    for number in range(ORDERS):
        order = [*CASES, *CASES]
        random.Random(number).shuffle(order)
        assert end_of(order) == once

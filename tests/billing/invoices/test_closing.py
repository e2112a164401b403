"""A month of traffic, closed: everything is on one invoice, and it all adds up to the nano."""

from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from billing.audit import audit
from billing.errors import MonthNotOver
from billing.invoices import closing
from billing.invoices.acts import act_on
from billing.invoices.closing import close_due_months, close_month
from billing.invoices.months import month_before
from billing.invoices.reconciling import reconcile
from billing.models import CloseRun, Invoice, InvoiceLine, PlanFee
from tests.billing.acts import held, settle
from tests.billing.month import last_month, make_month
from tests.web.relayed import id_at

pytestmark = pytest.mark.django_db
MONTH_LATER = timedelta(days=31)

ON_INVOICES = """
SELECT count(*), count(DISTINCT e.id)
FROM billing_exchange e
JOIN billing_invoiceexchange m ON m.exchange_id = e.id AND m.tenant_id = e.tenant_id
                              AND NOT m.is_released
JOIN billing_invoice i ON i.id = m.invoice_id AND i.tenant_id = e.tenant_id AND i.state <> 'void'
WHERE e.state = 'settled'
"""
CHARGED = """
SELECT coalesce(sum(CASE WHEN d.kind = 'credit' THEN 0 ELSE t.amount_nanos END), 0)::bigint
FROM billing_transfer t JOIN billing_account d ON d.id = t.debit_account_id
WHERE t.phase = 2 OR t.code = 'fee'
"""
DOCUMENT = """
SELECT i.tenant_id, i.month::text, i.net_nanos, i.carried_in_nanos, i.total_nanos,
       i.exchange_count, array_agg(ROW(l.position, l.words, l.quantity, l.unit_nanos,
                                       l.amount_nanos, l.exchange_count)::text ORDER BY l.position)
FROM billing_invoice i JOIN billing_invoiceline l ON l.invoice_id = i.id
WHERE i.state <> 'void' AND i.tenant_id = ANY (%s)
GROUP BY i.id ORDER BY i.tenant_id, i.month
"""


def rows(query: str, *parameters) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()


def documents(traffic) -> list[tuple]:
    """All that the invoices say, but for their own ids."""
    return rows(DOCUMENT, [tenant.pk for tenant in traffic.tenants])


def asked_and_carried() -> int:
    """The totals of all invoices, and what the last one of each tenant carries on."""
    standing = Invoice.objects.exclude(state="void").order_by("tenant_id", "pk")
    last = {invoice.tenant_id: invoice for invoice in standing}
    carried_nanos = sum(invoice.carried_out_nanos for invoice in last.values())
    return sum(invoice.total_nanos for invoice in standing) + carried_nanos


def check_all(settled: int, month: date) -> None:
    """`month` is the one whose lines are compared one by one; the audit compares all."""
    assert rows(ON_INVOICES) == [(settled, settled)]
    assert rows(CHARGED) == [(asked_and_carried(),)]
    drafted = Invoice.objects.filter(month=month)
    assert {reconcile(invoice).difference_nanos for invoice in drafted} == {0}
    assert audit().differences == ()


def test_a_month_of_all_kinds_of_traffic_is_on_invoices_to_the_nano(world) -> None:
    traffic = make_month(world, tenants=50, each=120)
    assert audit().differences == ()
    heard = []
    run = close_month(traffic.month, actor="tests", say=lambda run: heard.append(run.done_count))
    assert (run.drafted_count, run.failed_count, run.finished_at is not None) == (50, 0, True)
    assert heard == list(range(1, 51))
    late = traffic.open().count()
    assert late > 0
    check_all(50 * 120 - late, traffic.month)

    kinds = set(InvoiceLine.objects.values_list("kind", flat=True))
    assert kinds >= {"usage", "requests", "rounding", "shortfall", "uncharged", "fee", "credit"}
    first = documents(traffic)
    assert close_month(traffic.month, actor="tests").drafted_count == 0
    assert documents(traffic) == first

    assert traffic.settle_late() == late
    with time_machine.travel(timezone.now() + MONTH_LATER):
        following = (traffic.month + MONTH_LATER).replace(day=1)
        close_month(following, actor="tests")
    check_all(50 * 120, following)
    assert [one for one in documents(traffic) if one[1] == str(traffic.month)] == first
    assert sum(row[5] for row in documents(traffic) if row[1] == str(following)) == late


def test_the_planner_knows_of_what_was_listed(world) -> None:
    """Without it the first views of a million exchanges are planned as if there were none."""
    traffic = make_month(world, tenants=2, each=50)
    close_month(traffic.month, actor="tests")
    listed = rows("SELECT count(*) FROM billing_invoiceexchange")[0][0]
    known = rows(
        "SELECT sum(greatest(reltuples, 0)) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid"
        " WHERE inhparent = 'billing_invoiceexchange'::regclass"
    )
    assert known[0][0] == listed > 0


def test_a_run_that_died_is_gone_on_with(world) -> None:
    traffic = make_month(world, tenants=6, each=20)

    def die(run: CloseRun) -> None:
        if run.done_count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        close_month(traffic.month, actor="tests", say=die)
    died = CloseRun.objects.get()
    assert (died.done_count, died.tenant_count, died.finished_at) == (2, 6, None)
    assert close_month(traffic.month, actor="tests").drafted_count == 4
    assert [row[0] for row in documents(traffic)] == [tenant.pk for tenant in traffic.tenants]


def test_a_void_invoice_gives_its_exchanges_and_fees_to_the_next_draft(world) -> None:
    traffic = make_month(world, tenants=2, each=60)
    close_month(traffic.month, actor="tests")
    first = documents(traffic)
    void = Invoice.objects.get(tenant=traffic.tenants[1])
    act_on(void.pk, "void", actor="dora", reason="wrong address")
    assert close_month(traffic.month, actor="tests").drafted_count == 1
    assert documents(traffic) == first
    assert reconcile(void).difference_nanos == 0
    assert audit().differences == ()


def test_a_void_invoice_of_an_older_month_comes_with_the_next_one(world) -> None:
    """And takes its own part of the remainder with it."""
    traffic = make_month(world, tenants=2, each=60)
    close_month(traffic.month, actor="tests")
    settled = rows(ON_INVOICES)[0][0]
    for invoice in Invoice.objects.all():
        act_on(invoice.pk, "void", actor="dora", reason="too early")
    assert asked_and_carried() == 0
    following = (traffic.month + MONTH_LATER).replace(day=1)
    with time_machine.travel(timezone.now() + MONTH_LATER):
        close_month(following, actor="tests")
    check_all(settled, following)


def test_limits_of_a_month_are_those_of_the_tenants_time_zone(world) -> None:
    """Los Angeles is eight hours behind UTC at the end of January."""
    tenant = world.tenant()
    tenant.time_zone = "America/Los_Angeles"
    tenant.save(update_fields=["time_zone"])
    ends_at = datetime(2026, 2, 1, 8, tzinfo=UTC)
    moments = [ends_at - timedelta(microseconds=1), ends_at]
    with time_machine.travel(ends_at + timedelta(hours=1), tick=False):
        for moment in moments:
            settle(held(tenant, 0, created_at=moment), 0)
        close_month(date(2026, 1, 1), actor="tests")
        assert Invoice.objects.get(tenant=tenant).exchange_count == 1
    with time_machine.travel(ends_at + MONTH_LATER, tick=False):
        close_month(date(2026, 2, 1), actor="tests")
        assert Invoice.objects.get(tenant=tenant, month=date(2026, 2, 1)).exchange_count == 1


def test_a_month_that_runs_is_not_closed(world) -> None:
    tenant = world.tenant()
    with time_machine.travel(datetime(2026, 1, 31, 23, 59, tzinfo=UTC)):
        with pytest.raises(MonthNotOver, match="2026-01 is not over yet"):
            close_month(date(2026, 1, 1), actor="tests", only=[tenant.pk])
        with pytest.raises(MonthNotOver, match="2026-02 has not begun"):
            close_month(date(2026, 2, 1), actor="tests")
    assert not CloseRun.objects.exists()


def test_a_tenant_without_anything_gets_no_document(world) -> None:
    tenant = world.tenant()
    run = close_month(last_month(), actor="tests")
    assert (run.done_count, run.drafted_count) == (1, 0)
    assert not Invoice.objects.filter(tenant=tenant).exists()


def test_one_that_fails_keeps_nobody_from_their_invoice_and_leaves_nothing(world) -> None:
    """A charge without a price is explained by nothing, so there is no document with it."""
    broken, sound = world.tenant(), world.tenant()
    past = timezone.now() - 2 * MONTH_LATER
    settle(held(broken, 1_000, created_at=past, exchange_id=id_at(past)), 500)
    settle(held(sound, 0, created_at=past, exchange_id=id_at(past)), 0)
    run = close_month(month_before(past.date() + MONTH_LATER), actor="tests")
    assert (run.done_count, run.drafted_count, run.failed_count) == (2, 1, 1)
    assert [invoice.tenant_id for invoice in Invoice.objects.all()] == [sound.pk]
    assert rows(ON_INVOICES) == [(1, 1)]


def test_test_keys_other_currencies_and_what_is_open_stay_off_the_invoice(world) -> None:
    tenant = world.tenant()
    past = timezone.now() - 2 * MONTH_LATER
    for changes in ({"is_test": True}, {"currency": "EUR"}):
        settle(held(tenant, 0, created_at=past, exchange_id=id_at(past), **changes), 0)
    held(tenant, 0, created_at=past, exchange_id=id_at(past))
    run = close_month(month_before(past.date() + MONTH_LATER), actor="tests")
    assert run.drafted_count == 0
    assert not InvoiceLine.objects.exists()


def test_the_task_waits_for_the_grace_and_asks_nobody_twice(world) -> None:
    traffic = make_month(world, tenants=4, each=10)
    ends = datetime(traffic.month.year, traffic.month.month, 28, tzinfo=UTC) + timedelta(days=4)
    ends = ends.replace(day=1)
    with time_machine.travel(ends + timedelta(hours=5)):
        # Of UTC, Berlin, Los Angeles and Kiritimati, whose month ended fourteen hours before.
        assert close_due_months().drafted_count == 2
        assert close_due_months() is None
    with time_machine.travel(ends + timedelta(hours=15)):
        assert close_due_months().drafted_count == 2
        assert close_due_months() is None
    assert PlanFee.objects.filter(month=traffic.month).exists()


def test_a_task_stops_in_time_and_the_next_one_goes_on(world, monkeypatch) -> None:
    traffic = make_month(world, tenants=3, each=5)
    monkeypatch.setattr(closing, "TASK_S", -1.0)
    with time_machine.travel(timezone.now().replace(day=3)):
        assert close_due_months().done_count == 0
        monkeypatch.setattr(closing, "TASK_S", 60.0)
        assert close_due_months().done_count == 3
    assert len(documents(traffic)) in {0, 3}

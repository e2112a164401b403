"""Checks that people ask for: once each, within the daily cost, whatever becomes of a task."""

from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from gateway.models import CheckJob, Qualification, Vendor, VendorCheck
from gateway.qualification import asking, cost
from gateway.qualification.asking import CannotAskError, ask, make_asked, oldest_waiting
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds
from gateway.qualification.gate import state_of
from gateway.qualification.making import CHECK_LOCK
from gateway.qualification.recheck import recheck_due
from keys.models import AuditEvent
from tests.gateway.qualification.conftest import made_vendor

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:1/v1"
BOUNDS = Bounds(call_s=2.0, run_s=10.0, stop_s=0.5)


def spent(vendor: Vendor, tokens: int) -> None:
    now = timezone.now()
    VendorCheck.objects.create(
        vendor=vendor,
        vendor_model="other",
        base_url=vendor.base_url,
        started_at=now,
        finished_at=now,
        spent_tokens=tokens,
        report={},
    )


class AnotherWorker:
    """Makes a check in a session of its own, so long as the block lasts."""

    def __enter__(self) -> None:
        settings = connection.get_connection_params()
        names = ("dbname", "user", "password", "host", "port")
        self.session = psycopg.connect(**{n: settings[n] for n in names if n in settings})
        self.session.execute("SELECT pg_advisory_lock(%s)", [CHECK_LOCK])

    def __exit__(self, *_: object) -> None:
        self.session.execute("SELECT pg_advisory_unlock(%s)", [CHECK_LOCK])
        self.session.close()


def test_who_asks_gets_a_check_that_is_kept(clever):
    vendor = made_vendor(clever.base_url, "echo")
    job = ask(vendor, "echo", actor="dora")
    assert (job.asked_by, job.started_at, job.finished_at) == ("dora", None, None)
    event = AuditEvent.objects.get(action="vendor:check-asked")
    assert (event.actor, event.subject, event.detail) == ("dora", "acme", {"model": "echo"})

    assert make_asked(job.pk, bounds=BOUNDS)

    job.refresh_from_db()
    check = VendorCheck.objects.get()
    assert check.passed
    assert job.asked_at <= job.started_at <= check.started_at
    assert (job.finished_at >= check.finished_at, job.problem) == (True, "")
    vendor.refresh_from_db()
    assert state_of(vendor) == "qualified"


def test_a_task_that_is_delivered_again_makes_no_second_check(clever):
    job = ask(made_vendor(clever.base_url, "echo"), "echo", actor="dora")
    make_asked(job.pk, bounds=BOUNDS)
    asked = clever.asked
    finished_at = CheckJob.objects.get().finished_at
    assert make_asked(job.pk, bounds=BOUNDS)
    assert clever.asked == asked
    assert (VendorCheck.objects.count(), CheckJob.objects.get().finished_at) == (1, finished_at)


def test_asking_again_before_it_is_made_is_the_same_job():
    vendor = made_vendor(URL, "echo", "echo-reasoning")
    job = ask(vendor, "echo", actor="dora")
    assert ask(vendor, "echo", actor="erin") == job
    assert ask(vendor, "echo-reasoning", actor="dora") != job
    assert AuditEvent.objects.filter(action="vendor:check-asked").count() == 2


@pytest.mark.parametrize("fields", [{"qualification": Qualification.WAIVED}, {"disabled_at": True}])
def test_who_is_left_alone_by_the_schedule_may_be_asked_about(clever, fields):
    fields = {**fields, "disabled_reason": "its bill"} if "disabled_at" in fields else fields
    fields = {n: timezone.now() if v is True else v for n, v in fields.items()}
    vendor = made_vendor(clever.base_url, "echo", **fields)
    assert recheck_due(bounds=BOUNDS) == 0
    make_asked(ask(vendor, "echo", actor="dora").pk, bounds=BOUNDS)
    assert VendorCheck.objects.get().passed
    vendor.refresh_from_db()
    assert vendor.disabled_at == fields.get("disabled_at")


class TestRefusals:
    def refused(self, vendor: Vendor, model: str) -> str:
        before = CheckJob.objects.count(), AuditEvent.objects.count()
        with pytest.raises(CannotAskError) as error:
            ask(vendor, model, actor="dora")
        assert (CheckJob.objects.count(), AuditEvent.objects.count()) == before
        return str(error.value)

    def test_a_model_that_no_route_names(self):
        assert self.refused(made_vendor(URL, "echo"), "large") == "No route names this model."

    def test_a_vendor_that_no_catalog_names(self):
        vendor = made_vendor(URL, "echo", is_active=False)
        assert self.refused(vendor, "echo") == "No route names this model."

    def test_what_would_cost_too_much_in_a_day(self):
        vendor = made_vendor(URL, "echo", "other", "third")
        spent(vendor, cost.DAY_TOKENS - 2 * DEFAULT_BOUNDS.tokens)
        ask(vendor, "echo", actor="dora")
        ask(vendor, "other", actor="dora")  # what waits counts as the most that it may cost
        assert "have cost or may cost 100,000 of 100,000 tokens" in self.refused(vendor, "third")


def test_while_another_check_is_made_a_job_waits(clever):
    job = ask(made_vendor(clever.base_url, "echo"), "echo", actor="dora")
    with AnotherWorker():
        assert not make_asked(job.pk, bounds=BOUNDS)
        assert recheck_due(bounds=BOUNDS) == 0
    job.refresh_from_db()
    assert (job.started_at, clever.asked) == (None, 0)
    assert oldest_waiting() == job.pk
    assert make_asked(job.pk, bounds=BOUNDS)
    assert oldest_waiting() is None


def test_a_job_whose_task_is_lost_is_found_by_the_schedule(clever):
    vendor = made_vendor(clever.base_url, "echo", qualification=Qualification.WAIVED)
    job = ask(vendor, "echo", actor="dora")
    assert recheck_due(bounds=BOUNDS) == 1
    job.refresh_from_db()
    assert job.finished_at is not None
    assert recheck_due(bounds=BOUNDS) == 0


def test_a_run_that_was_cut_off_is_said_to_be_so_and_not_made_again(clever, monkeypatch):
    vendor = made_vendor(clever.base_url, "echo")
    job = ask(vendor, "echo", actor="dora")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "checked", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make_asked(job.pk, bounds=BOUNDS)
    with AnotherWorker():
        make_asked(job.pk, bounds=BOUNDS)
        job.refresh_from_db()
        assert job.finished_at is None  # whoever holds the lock may be making it

    make_asked(job.pk, bounds=BOUNDS)

    job.refresh_from_db()
    assert (job.problem, job.finished_at is None) == (asking.CUT_OFF, False)
    assert (clever.asked, VendorCheck.objects.count()) == (0, 0)
    assert cost.spent_tokens(vendor, timezone.now()) == DEFAULT_BOUNDS.tokens


def test_a_model_that_is_gone_meanwhile_is_not_asked_for(clever):
    vendor = made_vendor(clever.base_url, "echo")
    job = ask(vendor, "echo", actor="dora")
    vendor.routes.all().delete()
    make_asked(job.pk, bounds=BOUNDS)
    job.refresh_from_db()
    assert (job.problem, clever.asked) == (asking.NO_ROUTE, 0)
    assert cost.spent_tokens(vendor, timezone.now()) == 0


def test_jobs_of_the_day_before_are_forgotten():
    vendor = made_vendor(URL, "echo")
    yesterday = timezone.now() - timedelta(hours=25)
    old = CheckJob.objects.create(
        vendor=vendor, vendor_model="echo", asked_by="dora", asked_at=yesterday
    )
    CheckJob.objects.update(finished_at=yesterday)
    job = ask(vendor, "echo", actor="dora")
    assert list(CheckJob.objects.all()) == [job]
    assert asking.latest_jobs([vendor]) == [job]
    assert str(old) == f"{vendor.pk} echo"

"""Invoices: the operator's review and its acts, and what a tenant sees of its own."""

import re

import pytest
from django.test import Client

from billing.invoices.acts import act_on
from billing.invoices.closing import close_month
from billing.models import Invoice, InvoiceExchange, InvoiceLine
from gateway.web.invoices import review
from keys.models import AuditEvent
from tests.billing.month import make_month
from tests.web.conftest import confirmed, page_of, signed_in, text_of

pytestmark = pytest.mark.django_db
SEEN = re.compile(r'<input type="hidden" name="seen" value="([^"]+)"')


@pytest.fixture
def invoices(acme) -> list[Invoice]:
    traffic = make_month(acme.world, tenants=3, each=60)
    close_month(traffic.month, actor="tests")
    return list(Invoice.objects.order_by("pk"))


def move(invoice: Invoice, *acts: str) -> Invoice:
    for act in acts:
        act_on(invoice.pk, act, actor="tests", reason="checked")
    invoice.refresh_from_db()
    return invoice


def post(client: Client, invoice: Invoice, act: str, **fields: str):
    fields = {"seen": invoice.state_at.isoformat(), "reason": "checked", **fields}
    return client.post(f"/staff/invoices/{invoice.public_id}/{act}", fields)


# --- the operator -------------------------------------------------------------------------------


def test_only_staff_may_see_the_review_or_act(acme, invoices) -> None:
    invoice = invoices[0]
    owner = acme.world.person("olga", invoice.tenant)
    for path in ("", f"/{invoice.public_id}", f"/{invoice.public_id}/lines/1"):
        assert signed_in(owner).get(f"/staff/invoices{path}").status_code == 403
    assert post(confirmed(owner), invoice, "submit").status_code == 403
    invoice.refresh_from_db()
    assert invoice.state == "draft"


def test_an_empty_queue_says_where_invoices_come_from(acme) -> None:
    text = text_of(signed_in(acme.dora).get("/staff/invoices"))
    assert "No invoice is in this state" in text
    assert "close_month" in text


def test_the_queue_counts_each_state_and_pages(acme, invoices, monkeypatch) -> None:
    monkeypatch.setattr(review, "QUEUE_ROWS", 2)
    client = signed_in(acme.dora)
    assert "Nothing waits for a review" in text_of(client.get("/staff/invoices"))
    first = client.get("/staff/invoices?state=draft")
    assert "Newest first, 2 of 3." in text_of(first)
    assert "Closes of months" in text_of(first)
    older = re.search(r'href="([^"]+)" rel="next"', page_of(first)).group(1)
    second = text_of(client.get(older.replace("&amp;", "&")))
    assert invoices[0].tenant_name in second
    assert invoices[2].tenant_name not in second


def test_an_invoice_reconciles_with_exchanges_and_ledger(acme, invoices) -> None:
    page = signed_in(acme.dora).get(f"/staff/invoices/{invoices[1].public_id}")
    assert "Reconciles to zero" in text_of(page)
    assert "Draft made" in text_of(page)
    assert "number is given on issue" in text_of(page)


def test_behind_each_line_are_its_exchanges(acme, invoices) -> None:
    client = signed_in(acme.dora)
    lines = InvoiceLine.objects.filter(invoice=invoices[1], exchange_count__gt=0)
    assert lines
    for line in lines:
        response = client.get(f"/staff/invoices/{invoices[1].public_id}/lines/{line.position}")
        text = text_of(response)
        assert f"of {line.exchange_count:,}." in text
    assert client.get(f"/staff/invoices/{invoices[1].public_id}/lines/9999").status_code == 404


@pytest.mark.parametrize("name", ["inv_999999", "inv_x", "x", "inv_" + "9" * 30])
def test_what_there_is_not_is_not_found(acme, name: str) -> None:
    assert signed_in(acme.dora).get(f"/staff/invoices/{name}").status_code == 404


def test_from_draft_to_paid_with_a_reason_each(acme, invoices) -> None:
    invoice, client = invoices[0], confirmed(acme.dora)
    for act, state in (("submit", "review"), ("issue", "issued"), ("pay", "paid")):
        page = client.get(f"/staff/invoices/{invoice.public_id}")
        seen = SEEN.search(page_of(page)).group(1)
        response = post(client, invoice, act, seen=seen, reason=f"{act} is right")
        assert response.status_code == 302
        invoice.refresh_from_db()
        assert invoice.state == state
    text = text_of(client.get(f"/staff/invoices/{invoice.public_id}"))
    assert f"Issued as {invoice.number_text} by {acme.dora.email}" in text
    assert "pay is right" in text
    assert "nothing is left to do" in text


def test_an_act_without_a_reason_or_a_recent_login_changes_nothing(acme, invoices) -> None:
    invoice = invoices[0]
    refused = post(confirmed(acme.dora), invoice, "submit", reason=" ")
    assert refused.status_code == 422
    assert "reason" in text_of(refused).lower()
    assert "reauthenticate" in post(signed_in(acme.dora), invoice, "submit").headers["location"]
    invoice.refresh_from_db()
    assert invoice.state == "draft"


def test_an_act_twice_or_on_what_has_moved_is_refused(acme, invoices) -> None:
    invoice, client = invoices[0], confirmed(acme.dora)
    seen = invoice.state_at.isoformat()
    assert post(client, invoice, "submit").status_code == 302
    events = AuditEvent.objects.count()
    again = post(client, invoice, "submit", seen=seen)
    assert again.status_code == 409
    assert "Nothing was done" in text_of(again)
    assert post(client, invoice, "issue", seen="2026-12-01T00:00:00+00:00").status_code == 409
    assert post(client, invoice, "issue", seen="").status_code == 409
    assert AuditEvent.objects.count() == events
    invoice.refresh_from_db()
    assert invoice.state == "review"


def test_without_a_token_nothing_is_done(acme, invoices) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(acme.dora, backend="allauth.account.auth_backends.AuthenticationBackend")
    assert post(client, invoices[0], "submit").status_code == 403
    invoices[0].refresh_from_db()
    assert invoices[0].state == "draft"


def test_to_void_one_its_name_is_typed(acme, invoices) -> None:
    invoice, client = move(invoices[0], "submit", "issue"), confirmed(acme.dora)
    asked = client.get(f"/staff/invoices/{invoice.public_id}/void")
    assert "This cannot be undone" in text_of(asked)
    assert post(client, invoice, "void", name="2026-99999").status_code == 422
    assert post(client, invoice, "void", name=invoice.number_text, reason="").status_code == 422
    invoice.refresh_from_db()
    assert invoice.state == "issued"
    assert post(client, invoice, "void", name=invoice.number_text).status_code == 302
    invoice.refresh_from_db()
    assert invoice.state == "void"


# --- the tenant ---------------------------------------------------------------------------------


def test_a_tenant_sees_what_was_issued_to_it_and_nothing_else(acme, invoices) -> None:
    mine, other = invoices[0], move(invoices[1], "submit", "issue")
    owner = signed_in(acme.world.person("olga", mine.tenant))
    assert "No invoice yet" in text_of(owner.get("/invoices"))
    for invoice in (mine, other):
        assert owner.get(f"/invoices/{invoice.public_id}").status_code == 404
        assert owner.get(f"/invoices/{invoice.public_id}/lines/1").status_code == 404
    move(mine, "submit")
    assert owner.get(f"/invoices/{mine.public_id}").status_code == 404
    move(mine, "issue")
    assert mine.number_text in text_of(owner.get("/invoices"))
    assert f"Invoice {mine.number_text}" in text_of(owner.get(f"/invoices/{mine.public_id}"))
    move(mine, "void")
    assert owner.get(f"/invoices/{mine.public_id}").status_code == 404


def test_a_tenant_sees_the_requests_behind_each_line(acme, invoices) -> None:
    mine = move(invoices[0], "submit", "issue")
    owner = signed_in(acme.world.person("olga", mine.tenant))
    listed = InvoiceExchange.objects.filter(invoice_id=mine.pk).count()
    assert listed
    for line in InvoiceLine.objects.filter(invoice=mine, exchange_count__gt=0):
        page = owner.get(f"/invoices/{mine.public_id}/lines/{line.position}")
        assert f"of {line.exchange_count:,}." in text_of(page)
        assert "/requests/req_" in page_of(page)


def test_roles_that_see_no_money_see_no_invoices(acme, invoices) -> None:
    mine = move(invoices[0], "submit", "issue")
    viewer = signed_in(acme.world.person("vera", mine.tenant, "viewer"))
    assert viewer.get("/invoices").status_code == 403
    assert viewer.get(f"/invoices/{mine.public_id}").status_code == 403
    assert 'href="/invoices"' not in page_of(viewer.get("/requests"))

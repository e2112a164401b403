"""The pages' addresses. A name begins with its part of the site: the navigation reads that."""

from django.urls import path

from gateway.web import counting, keys, messages, session, staff, transcripts
from gateway.web.invoices import acts, own, review
from gateway.web.requests import detail
from gateway.web.requests import list as requests
from gateway.web.vendors import acts as vendor_acts
from gateway.web.vendors import detail as vendor
from gateway.web.vendors import list as vendors

urlpatterns = [
    path("", session.home, name="home"),
    path("tenant", session.change_tenant, name="tenant"),
    path("mode", session.change_mode, name="mode"),
    path("keys", keys.index, name="keys"),
    path("keys/new", keys.new, name="keys-new"),
    path("keys/stored", keys.stored, name="keys-stored"),
    path("keys/<slug:public_id>", keys.key, name="keys-key"),
    path("keys/<slug:public_id>/revoke", keys.revoke, name="keys-revoke"),
    path("requests", requests.index, name="requests"),
    path("requests.csv", requests.export, name="requests-csv"),
    path("requests/<slug:request_id>.json", detail.as_json, name="requests-json"),
    path("requests/<slug:request_id>", detail.page, name="requests-request"),
    path("messages", messages.index, name="messages"),
    path("messages/<int:message_id>/read", messages.read, name="messages-read"),
    path("messages/<int:message_id>/archive", messages.archive, name="messages-archive"),
    path("transcripts", transcripts.index, name="transcripts"),
    path("invoices", own.index, name="invoices"),
    path("invoices/<slug:public_id>", own.invoice, name="invoices-invoice"),
    path("invoices/<slug:public_id>/lines/<int:position>", own.line, name="invoices-line"),
    path("staff", staff.index, name="staff"),
    path("staff/counting", counting.index, name="counting"),
    path("staff/counting/<slug:public_id>", counting.correction, name="counting-correction"),
    path("staff/counting/<slug:public_id>/<slug:act>", counting.act, name="counting-act"),
    path("staff/invoices", review.index, name="review"),
    path("staff/invoices/<slug:public_id>", review.invoice, name="review-invoice"),
    path("staff/invoices/<slug:public_id>/<slug:act>", acts.act, name="review-act"),
    path("staff/invoices/<slug:public_id>/lines/<int:position>", review.line, name="review-line"),
    path("staff/vendors", vendors.index, name="vendors"),
    path("staff/vendors/<str:name>", vendor.vendor, name="vendors-vendor"),
    path("staff/vendors/<str:name>/check", vendor_acts.check_now, name="vendors-check-now"),
    path("staff/vendors/<str:name>/<slug:act>", vendor_acts.act, name="vendors-act"),
    path("staff/vendors/<str:name>/checks/<int:check_id>", vendor.check, name="vendors-check"),
]

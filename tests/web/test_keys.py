"""Keys: what the list adds up to, the secret that is shown once, and who may do what."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from keys.models import ApiKey, AuditAction, AuditEvent
from keys.principals import PRINCIPAL_SQL
from keys.secrets import public_id_of
from keys.services import revoke_key
from tests.web.conftest import NOW, amounts_of, confirmed, page_of, signed_in, text_of

SECRET = re.compile(r"sk_(?:live|test)_[0-9A-Za-z]{10}_[0-9A-Za-z]{33}")
FORM = {"once": "a-form", "name": "warehouse-eu", "scope": "all"}


def total_of(page: str) -> str:
    return amounts_of(page.partition("<tfoot>")[2])[0]


def made_key(acme) -> ApiKey:
    return ApiKey.objects.get(tenant=acme.tenant, name="warehouse-eu")


# --- the list -----------------------------------------------------------------------------------


def test_a_row_says_what_a_key_may_and_what_it_did(acme):
    acme.world.key(
        acme.tenant,
        "fleet-planner",
        allowed_models=["a", "b"],
        allowed_ips=["198.51.100.0/24"],
        requests_per_minute=1_200,
        concurrent_requests=8,
        expires_at=datetime(2027, 3, 31, tzinfo=UTC),
    )
    text = text_of(signed_in(acme.bob).get("/keys"))
    assert "2 models from 198.51.100.0/24 1,200 a minute 8 at once 0.000000000" in text
    assert "never 31 Mar 2027 Active" in text


def test_what_the_keys_spent_adds_up_to_what_the_requests_cost(acme):
    other = acme.world.key(acme.tenant, "notebooks").key
    acme.relayed().hold().settle()
    acme.relayed(key=other, ago=timedelta(days=3)).hold().settle_at_estimate()
    acme.relayed(ago=timedelta(days=20)).hold().settle()
    browser = signed_in(acme.bob)
    keys = page_of(browser.get("/keys"))
    # 1,000 × 1 + 24 × 0.1 + 333 × 4 per million, twice; the third was in November
    assert amounts_of(keys) == ["0.002334400", "0.002334400", "0.004668800"]
    requests = text_of(browser.get("/requests?period=month"))
    assert "2 requests" in requests
    assert "Charged 0.004668800 USD" in requests


def test_what_revoked_keys_spent_is_in_the_total_of_both_lists(acme):
    acme.relayed().hold().settle()
    old = acme.world.key(acme.tenant, "old").key
    acme.relayed(key=old).hold().settle()
    revoke_key(acme.tenant, old.public_id, actor="tests")
    browser = signed_in(acme.alice)
    for address, other in (("/keys", "1 revoked"), ("/keys?show=revoked", "1 active")):
        page = browser.get(address)
        assert amounts_of(page_of(page)) == ["0.002334400", "0.002334400", "0.004668800"]
        assert other in text_of(page)


def test_keys_beyond_the_longest_list_are_in_the_total(acme, monkeypatch):
    from gateway.web import keys

    monkeypatch.setattr(keys, "LIST_KEYS_MAX", 1)
    acme.relayed().hold().settle()
    acme.world.key(acme.tenant, "newest")
    page = signed_in(acme.bob).get("/keys")
    assert amounts_of(page_of(page)) == ["0.000000000", "0.002334400", "0.002334400"]
    assert "All other keys" in text_of(page)


def test_a_request_that_is_not_settled_is_not_spent_but_is_use(acme):
    acme.relayed(ago=timedelta(minutes=1)).hold()
    page = signed_in(acme.alice).get("/keys")
    assert total_of(page_of(page)) == "0.000000000"
    assert "14:19:05" in text_of(page)


def test_last_use_is_the_later_of_what_is_known(acme):
    from keys.models import KeyUse

    KeyUse.objects.create(key=acme.key, last_used_at=NOW - timedelta(days=40))
    browser = signed_in(acme.alice)
    assert "5 Nov 2026" in text_of(browser.get("/keys"))
    acme.relayed().hold().settle()
    assert "14:15:05" in text_of(browser.get("/keys"))


def test_a_key_of_an_earlier_month_without_use_is_not_said_to_be_unused_for_ever(acme):
    ApiKey.objects.filter(pk=acme.key.pk).update(created_at=NOW - timedelta(days=60))
    assert "not in December" in text_of(signed_in(acme.alice).get("/keys"))


def test_states_are_told_apart(acme):
    ApiKey.objects.filter(pk=acme.key.pk).update(expires_at=NOW - timedelta(hours=1))
    assert "Expired" in text_of(signed_in(acme.alice).get("/keys"))


def test_revoked_keys_have_a_list_of_their_own(acme):
    browser = signed_in(acme.alice)
    assert "No key was revoked" in text_of(browser.get("/keys?show=revoked"))
    revoke_key(acme.tenant, acme.key.public_id, actor="tests")
    assert acme.key.public_id not in page_of(browser.get("/keys"))
    assert acme.key.public_id in page_of(browser.get("/keys?show=revoked"))


def test_without_a_key_the_next_step_is_to_make_one(acme):
    empty = acme.world.tenant("Empty")
    owner = acme.world.person("erin", empty)
    viewer = acme.world.person("vera", empty, "viewer")
    assert 'href="/keys/new">Create key</a>' in page_of(signed_in(owner).get("/keys"))
    page = signed_in(viewer).get("/keys")
    assert "your role is viewer" in text_of(page)
    assert "/keys/new" not in page_of(page)


# --- who may ------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["owner", "admin", "developer"])
def test_these_roles_make_keys(acme, role):
    person = acme.world.person("pat", acme.tenant, role)
    browser = confirmed(person)
    assert browser.get("/keys/new").status_code == 200
    assert "/keys/new" in page_of(browser.get("/keys"))


@pytest.mark.parametrize("role", ["viewer", "billing"])
def test_those_roles_see_no_button_and_are_refused(acme, role):
    browser = confirmed(acme.world.person("pat", acme.tenant, role))
    for address in ("/keys", f"/keys/{acme.key.public_id}"):
        page = page_of(browser.get(address))
        assert "/keys/new" not in page
        assert "/revoke" not in page
    revoke = f"/keys/{acme.key.public_id}/revoke"
    for address, form in (("/keys/new", FORM), (revoke, {"name": "ci-agents"})):
        assert browser.get(address).status_code == 403
        response = browser.post(address, form)
        assert response.status_code == 403
        assert "Your role does not allow it" in text_of(response)
    acme.key.refresh_from_db()
    assert acme.key.revoked_at is None
    assert ApiKey.objects.filter(tenant=acme.tenant).count() == 2


# --- re-authentication --------------------------------------------------------------------------


def test_making_and_revoking_ask_again_who_it_is(acme):
    browser = signed_in(acme.alice)
    for address in ("/keys/new", f"/keys/{acme.key.public_id}/revoke"):
        assert browser.get(address)["location"].startswith("/accounts/reauthenticate/?next=")
        response = browser.post(address, {**FORM, "name": "ci-agents"})
        assert response["location"].startswith("/accounts/reauthenticate/?next=")
    acme.key.refresh_from_db()
    assert acme.key.revoked_at is None
    assert ApiKey.objects.filter(tenant=acme.tenant).count() == 2


def test_a_form_that_was_sent_too_late_is_taken_up_after_the_password(acme):
    browser = signed_in(acme.alice)
    asked = browser.post("/keys/new", FORM)
    response = browser.post(asked["location"], {"password": "alice-password"})
    assert "Key warehouse-eu is created." in text_of(response)
    assert len(set(SECRET.findall(page_of(response)))) == 1


def test_a_wrong_password_makes_nothing(acme):
    browser = signed_in(acme.alice)
    asked = browser.post("/keys/new", FORM)
    assert "created" not in text_of(browser.post(asked["location"], {"password": "wrong"}))
    assert ApiKey.objects.filter(tenant=acme.tenant).count() == 2


# --- making -------------------------------------------------------------------------------------


def test_the_secret_is_in_one_answer_and_never_again(acme):
    browser = confirmed(acme.alice)
    response = browser.post("/keys/new", FORM)
    (secret,) = set(SECRET.findall(page_of(response)))
    assert response["cache-control"].count("no-store") == 1
    assert public_id_of(secret) == made_key(acme).public_id
    for address in ("/keys", f"/keys/{public_id_of(secret)}", "/keys/new", "/messages"):
        assert secret not in page_of(browser.get(address))
    assert secret not in str(dict(browser.session))
    assert secret not in str(AuditEvent.objects.values_list())


def test_the_secret_opens_what_it_says(acme):
    from django.db import connection

    from keys.principals import principal_from_row

    browser = confirmed(acme.alice)
    (secret,) = set(SECRET.findall(page_of(browser.post("/keys/new", FORM))))
    with connection.cursor() as cursor:
        cursor.execute(PRINCIPAL_SQL, [public_id_of(secret)])
        principal = principal_from_row(cursor.fetchone())
    assert principal.proves(secret)
    assert (principal.tenant_id, principal.kind) == (acme.tenant.pk, "live")


def test_the_snippets_name_the_real_address_and_only_curl_has_the_secret(acme):
    page = page_of(confirmed(acme.alice).post("/keys/new", FORM))
    secret = SECRET.search(page)[0]
    assert page.count(secret) == 2
    assert "curl http://testserver/v1/chat/completions" in page
    assert page.count("http://testserver/v1&quot;") == 2
    assert "$FARTHING_KEY" in page


def test_a_key_may_what_its_form_said(acme, world):
    from gateway.models import Model

    Model.objects.get_or_create(name="deepseek-v4")
    response = confirmed(acme.alice).post(
        "/keys/new",
        {
            **FORM,
            "scope": "chosen",
            "models": ["deepseek-v4"],
            "allowed_ips": "198.51.100.0/24\n2001:db8::/32",
            "requests_per_minute": "120",
            "concurrent_requests": "4",
            "expires_on": "2027-06-01",
        },
    )
    key = made_key(acme)
    assert key.allowed_models == ["deepseek-v4"]
    assert key.allowed_ips == ["198.51.100.0/24", "2001:db8::/32"]
    assert (key.requests_per_minute, key.concurrent_requests) == (120, 4)
    assert key.expires_at == datetime(2027, 6, 1, tzinfo=UTC)
    assert (key.kind, key.created_by) == ("live", acme.alice)
    for rule in (
        "Models: deepseek-v4",
        "From 198.51.100.0/24, 2001:db8::/32",
        "At most 120 a minute, 4 at once",
        "Expires 1 June 2027, 00:00 UTC",
    ):
        assert f"<span>{rule}</span>" in page_of(response)


def test_in_test_mode_a_test_key_is_made(acme):
    browser = confirmed(acme.alice)
    browser.post("/mode", {"mode": "test"})
    page = page_of(browser.post("/keys/new", FORM))
    assert SECRET.search(page)[0].startswith("sk_test_")
    assert made_key(acme).kind == "test"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": ""}, "Enter a name: who uses the key, or what for."),
        ({"name": "x" * 81}, "at most 80 characters"),
        ({"scope": "chosen"}, "Tick at least one model, or choose all models."),
        ({"models": ["no-such"], "scope": "chosen"}, "no-such is not one of the available"),
        ({"allowed_ips": "198.51.100.0/40"}, "is no IP address or range."),
        ({"allowed_ips": "\n".join(f"10.0.0.{n}" for n in range(51))}, "Enter at most 50 ranges."),
        ({"requests_per_minute": "0"}, "Enter 1 or more. Leave it empty for no limit."),
        ({"concurrent_requests": "many"}, "Enter 1 or more. Leave it empty for no limit."),
        ({"expires_on": "2026-12-15"}, "Enter a time in the future."),
        ({"expires_on": "soon"}, "Enter a valid date."),
    ],
)
def test_a_wrong_field_says_what_to_enter_and_makes_nothing(acme, wrong, words):
    response = confirmed(acme.alice).post("/keys/new", {**FORM, **wrong})
    assert response.status_code == 422
    assert words in text_of(response)
    assert ApiKey.objects.filter(tenant=acme.tenant).count() == 2
    assert not SECRET.search(page_of(response))


def test_sending_a_form_twice_makes_one_key_and_shows_no_secret_again(acme):
    browser = confirmed(acme.alice)
    browser.post("/keys/new", FORM)
    again = browser.post("/keys/new", FORM)
    key = made_key(acme)
    assert again["location"] == f"/keys/{key.public_id}"
    page = browser.get(again["location"])
    assert "This key was made before. Its secret was shown then, once." in text_of(page)
    assert not SECRET.search(page_of(page))


def test_a_form_without_its_hidden_field_makes_a_key_all_the_same(acme):
    browser = confirmed(acme.alice)
    response = browser.post("/keys/new", {name: FORM[name] for name in ("name", "scope")})
    assert "Key warehouse-eu is created." in text_of(response)
    assert "keys_made" not in browser.session


def test_each_opening_of_the_form_is_another_form(acme):
    browser = confirmed(acme.alice)
    pages = [page_of(browser.get("/keys/new")) for _ in range(2)]
    once = [re.search(r'name="once" value="([0-9a-f]{32})"', page)[1] for page in pages]
    assert once[0] != once[1]


def test_done_leads_back_to_the_list(acme):
    assert signed_in(acme.alice).post("/keys/stored", {"stored": "on"})["location"] == "/keys"


# --- one key, and its end -----------------------------------------------------------------------


def test_a_key_shows_its_history(acme):
    browser = confirmed(acme.alice)
    address = f"/keys/{acme.key.public_id}"
    browser.post(f"{address}/revoke", {"name": "ci-agents"})
    text = text_of(browser.get(address))
    assert f"Key revoked {acme.alice.email}" in text
    assert "Key created tests" in text


def test_another_tenants_acts_on_the_same_id_are_not_in_the_history(acme):
    AuditEvent.objects.create(
        tenant_id=acme.charlie.memberships.get().tenant_id,
        action=AuditAction.KEY_REVOKED,
        actor="charlie",
        subject=acme.key.public_id,
    )
    assert "charlie" not in text_of(signed_in(acme.alice).get(f"/keys/{acme.key.public_id}"))


def test_revoking_names_the_key_and_what_it_did_today(acme):
    acme.relayed().hold().settle()
    acme.relayed().refuse()
    acme.relayed(ago=timedelta(days=1)).hold().settle()
    text = text_of(confirmed(acme.alice).get(f"/keys/{acme.key.public_id}/revoke"))
    assert "Revoke key ci-agents?" in text
    assert f"every request with {acme.key.masked} gets 401. It made 2 requests today." in text


def test_revoking_needs_the_name(acme):
    browser = confirmed(acme.alice)
    address = f"/keys/{acme.key.public_id}/revoke"
    for name in ("", "ci-agent", "CI-AGENTS"):
        response = browser.post(address, {"name": name})
        assert response.status_code == 422
        assert "Enter the name exactly: ci-agents" in text_of(response)
    acme.key.refresh_from_db()
    assert acme.key.revoked_at is None


def test_revoking_is_done_once_and_on_record(acme):
    browser = confirmed(acme.alice)
    address = f"/keys/{acme.key.public_id}"
    assert browser.post(f"{address}/revoke", {"name": "ci-agents"})["location"] == address
    assert browser.post(f"{address}/revoke", {"name": "ci-agents"})["location"] == address
    assert browser.get(f"{address}/revoke")["location"] == address
    acme.key.refresh_from_db()
    assert acme.key.state == "revoked"
    events = AuditEvent.objects.filter(subject=acme.key.public_id, action=AuditAction.KEY_REVOKED)
    assert [event.actor for event in events] == [acme.alice.email]
    page = page_of(browser.get(address))
    assert f"{address}/revoke" not in page

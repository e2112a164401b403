import json
import stat
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from billing.audit import audit
from billing.models import Account, Payment
from gateway.catalog.apply import apply_file
from gateway.models import KEYLESS, Model, Vendor
from keys import secrets
from keys.models import ApiKey, AuditAction, AuditEvent, Tenant, User

pytestmark = pytest.mark.django_db

URL = "http://127.0.0.1:9/v1"


@pytest.fixture
def seed(tmp_path, capsys):
    def run(url: str = URL, **options) -> dict:
        capsys.readouterr()
        call_command("seed_demo", state=tmp_path / "demo.json", benchecho_url=url, **options)
        return json.loads(capsys.readouterr().out)

    run.state = tmp_path / "demo.json"
    return run


def a_catalog(path: Path, vendor: str = "other") -> Path:
    path.write_text(
        f"vendors: [{{name: {vendor}, base_url: '${{BENCHECHO_URL}}', credential: ''}}]\n"
        f"models: [{{name: mine, routes: [{{vendor: {vendor}, vendor_model: m}}],"
        " prices: [{input: 1, output: 2}]}]\n"
    )
    return path


def test_says_one_json_object_that_opens_everything(seed):
    demo = seed()
    assert sorted(demo) == ["api_key", "staff", "tenant", "test_key"]
    tenant = Tenant.objects.get(slug="demo")
    for name, kind in (("api_key", "live"), ("test_key", "test")):
        key = ApiKey.objects.get(public_id=secrets.public_id_of(demo[name]))
        assert (key.tenant, key.kind, key.state) == (tenant, kind, "active")
        assert secrets.matches(demo[name], bytes(key.secret_hash))
    owner = User.objects.get(email=demo["tenant"]["email"])
    staff = User.objects.get(email=demo["staff"]["email"])
    assert owner.check_password(demo["tenant"]["password"])
    assert staff.check_password(demo["staff"]["password"])
    assert (owner.is_staff, staff.is_staff) == (False, True)
    assert owner.memberships.get().role == "owner"
    assert not staff.memberships.exists()


def test_tenant_has_its_money_once(seed):
    seed()
    seed()
    wallet = Account.objects.get(tenant__slug="demo", kind="wallet")
    assert wallet.posted_nanos == 100_000_000_000
    assert Payment.objects.count() == 1
    assert audit().is_clean


def test_second_run_says_and_changes_the_same(seed):
    first = seed()
    keys, events = ApiKey.objects.count(), AuditEvent.objects.count()
    assert seed() == first
    assert ApiKey.objects.count() == keys
    assert AuditEvent.objects.count() == events


def test_state_is_for_its_owner_alone_and_says_what_was_printed(seed):
    demo = seed()
    assert stat.S_IMODE(seed.state.stat().st_mode) == 0o600
    assert json.loads(seed.state.read_text()) == demo


def test_lost_state_means_new_secrets_for_the_same_people(seed):
    first = seed()
    seed.state.unlink()
    second = seed()
    assert second["api_key"] != first["api_key"]
    assert second["tenant"]["email"] == first["tenant"]["email"]
    assert User.objects.count() == 2
    owner = User.objects.get(email=second["tenant"]["email"])
    assert owner.check_password(second["tenant"]["password"])


def test_revoked_key_is_replaced_and_the_other_one_kept(seed):
    first = seed()
    key = ApiKey.objects.get(public_id=secrets.public_id_of(first["api_key"]))
    key.revoked_at = key.created_at
    key.save(update_fields=["revoked_at"])
    second = seed()
    assert second["api_key"] != first["api_key"]
    assert second["test_key"] == first["test_key"]


def test_broken_state_is_refused_and_nothing_is_made(seed):
    seed.state.write_text("[]")
    with pytest.raises(CommandError, match=r"demo\.json is broken; remove it"):
        seed()
    assert not Tenant.objects.exists()


def test_new_address_of_benchecho_reaches_the_catalog(seed):
    seed()
    seed("http://127.0.0.1:10/v1")
    assert Vendor.objects.get().base_url == "http://127.0.0.1:10/v1"


def test_given_catalog_takes_the_place_of_the_demos_and_benchecho_stays(seed, tmp_path):
    seed(catalog=a_catalog(tmp_path / "mine.yaml"))
    assert set(Model.objects.values_list("name", flat=True)) == {"mine"}
    assert Vendor.objects.get(name="other").base_url == URL
    benchecho = Vendor.objects.get(name="benchecho")
    assert (benchecho.base_url, benchecho.credential, benchecho.is_active) == (URL, KEYLESS, True)


def test_benchecho_outside_the_catalog_follows_its_address(seed, tmp_path):
    catalog = a_catalog(tmp_path / "mine.yaml")
    seed(catalog=catalog)
    seed("http://127.0.0.1:10/v1", catalog=catalog)
    assert Vendor.objects.get(name="benchecho").base_url == "http://127.0.0.1:10/v1"


def test_catalog_that_somebody_else_applied_survives_a_restart(seed, tmp_path):
    seed()
    apply_file(a_catalog(tmp_path / "mine.yaml"), actor="ops", environment={"BENCHECHO_URL": URL})
    assert AuditEvent.objects.filter(action=AuditAction.CATALOG_APPLIED).first().actor == "ops"
    seed("http://127.0.0.1:10/v1")
    assert set(Model.objects.filter(is_active=True).values_list("name", flat=True)) == {"mine"}
    assert Vendor.objects.get(name="benchecho").base_url == "http://127.0.0.1:10/v1"


def test_wrong_catalog_is_told_with_its_lines(seed, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("vendors: []\n")
    with pytest.raises(CommandError, match=r"(?s)wrong\.yaml was not applied.*line 1: .*models"):
        seed(catalog=path)
    assert not Tenant.objects.exists()

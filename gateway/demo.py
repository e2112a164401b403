"""The demo that `make run` shows: a tenant with money and keys, two people, a catalog.

Made as often as wanted: what is there stays. Secrets are nowhere in the database in clear, so the
caller keeps what `seed` returns and brings it again next time.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from billing.errors import DuplicatePayment
from billing.money import NANOS_PER_UNIT
from billing.wallets import open_wallet, top_up
from gateway.catalog.apply import BUILT_IN_VENDOR, apply_file
from gateway.models import KEYLESS, Vendor
from gateway.people import make_person, new_password
from keys import secrets
from keys.models import ApiKey, AuditAction, AuditEvent, KeyKind, Role, Tenant
from keys.services import create_key, create_tenant

ACTOR: Final = "seed_demo"
CATALOG: Final = Path(__file__).parent / "catalog" / "demo.yaml"
SLUG: Final = "demo"
OWNER_EMAIL: Final = "owner@demo.example"
STAFF_EMAIL: Final = "staff@demo.example"
CREDIT_NANOS: Final = 100 * NANOS_PER_UNIT
PAYMENT_ID: Final = "demo-first-top-up"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Login:
    email: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Demo:
    """What a newcomer needs. Empty texts are secrets that are not known (any more)."""

    api_key: str = field(default="", repr=False)
    test_key: str = field(default="", repr=False)
    tenant: Login = Login(OWNER_EMAIL, "")
    staff: Login = Login(STAFF_EMAIL, "")


def seed(known: Demo, *, benchecho_url: str, catalog: Path | None, say: Say) -> Demo:
    """Make what is missing; secrets of `known` that still open something are kept.

    Raises OSError and CatalogMistakes where `catalog` cannot be read or applied.
    """
    _apply_catalog(catalog, benchecho_url, say)
    ensure_built_in_vendor(benchecho_url)
    tenant = _tenant(say)
    return Demo(
        api_key=_key(tenant, known.api_key, KeyKind.LIVE, say),
        test_key=_key(tenant, known.test_key, KeyKind.TEST, say),
        tenant=_login(known.tenant, tenant, say),
        staff=_login(known.staff, None, say),
    )


def ensure_built_in_vendor(benchecho_url: str) -> None:
    """Test keys need it whatever the catalog says, and it may have moved since the last start."""
    where = {"base_url": benchecho_url, "is_active": True}
    defaults = {**where, "credential": KEYLESS}
    vendor, _ = Vendor.objects.get_or_create(name=BUILT_IN_VENDOR, defaults=defaults)
    if (vendor.base_url, vendor.is_active) != (benchecho_url, True):
        Vendor.objects.filter(pk=vendor.pk).update(**where)


def _apply_catalog(catalog: Path | None, benchecho_url: str, say: Say) -> None:
    """A given catalog is applied at every start; the demo's own until somebody applied another."""
    if catalog is None and _is_catalog_of_others():
        say("The catalog was changed by somebody else: the demo's catalog is left out.")
        return
    environment: Mapping[str, str] = {**os.environ, "BENCHECHO_URL": benchecho_url}
    for line in apply_file(catalog or CATALOG, actor=ACTOR, environment=environment).lines():
        say(line)


def _is_catalog_of_others() -> bool:
    last = AuditEvent.objects.filter(action=AuditAction.CATALOG_APPLIED).order_by("-pk").first()
    return last is not None and last.actor != ACTOR


def _tenant(say: Say) -> Tenant:
    tenant = Tenant.objects.filter(slug=SLUG).first()
    if tenant is None:
        tenant = create_tenant("Demo", SLUG, actor=ACTOR)
        say("Made the tenant Demo.")
    open_wallet(tenant)
    try:
        top_up(tenant, CREDIT_NANOS, payment_id=PAYMENT_ID, actor=ACTOR, reason="The demo's money.")
    except DuplicatePayment:
        return tenant
    say(f"Credited {CREDIT_NANOS // NANOS_PER_UNIT}.00 {tenant.currency}.")
    return tenant


def _key(tenant: Tenant, known: str, kind: KeyKind, say: Say) -> str:
    """The known key while it may be used; else a new one."""
    key = ApiKey.objects.filter(
        tenant=tenant, kind=kind, public_id=secrets.public_id_of(known) or ""
    ).first()
    if key and key.state == "active" and secrets.matches(known, bytes(key.secret_hash)):
        return known
    created = create_key(tenant, f"demo {kind}", actor=ACTOR, kind=kind)
    say(f"Made the {kind} key {created.key.masked}.")
    return created.secret


def _login(known: Login, tenant: Tenant | None, say: Say) -> Login:
    """The known login while it is true; else the same person with a new password."""
    password = known.password or new_password()
    person = make_person(
        known.email,
        actor=ACTOR,
        password=password,
        tenant=tenant,
        role=Role.OWNER,
        is_staff=tenant is None,
    )
    if person.password is None and not person.user.check_password(password):
        person.user.set_password(password)
        person.user.save(update_fields=["password"])
        say(f"Set a new password for {known.email}.")
    return Login(known.email, password)

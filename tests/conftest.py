"""People and ground that every test may ask for.

Alice owns Acme, Bob develops there, Charlie owns another tenant and must see nothing of Acme,
Dora is staff. `committed` is for tests that need rows other connections can see: they stay, so
each test makes tenants of its own.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from billing.money import nanos_from_text

_numbers = itertools.count(1)


LEAVE_ROWS = {"committed", "stack"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take their rows back run first, on an empty database; the others afterwards.

    Where several processes share the work, a file's tests of one kind stay together, in order.
    """
    leaves = {item: not LEAVE_ROWS.isdisjoint(getattr(item, "fixturenames", ())) for item in items}
    items.sort(key=leaves.__getitem__)
    for item in items:
        kind = "leaves" if leaves[item] else "returns"
        item.add_marker(pytest.mark.xdist_group(f"{item.path}:{kind}"))


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment, django_db_blocker) -> None:
    """The test database, whichever tests run: pytest-django makes it for marked ones only.

    It is not taken down: it ends with the session's server, and a next run makes it anew.
    """
    from django.test.utils import setup_databases

    with django_db_blocker.unblock():
        setup_databases(verbosity=0, interactive=False)


@pytest.fixture
def committed(django_db_setup, django_db_blocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@dataclass(frozen=True)
class World:
    """Makes tenants with wallets, members, keys and prices, each under names of its own."""

    prefix: str

    def tenant(self, name: str = "Acme", balance: str = "10"):
        from billing.wallets import open_wallet, top_up
        from keys.services import create_tenant

        number = next(_numbers)
        tenant = create_tenant(name, f"{self.prefix}-{name.lower()}-{number}", actor="tests")
        open_wallet(tenant)
        if nanos_from_text(balance):
            top_up(
                tenant, nanos_from_text(balance), payment_id=f"{tenant.slug}-first", actor="tests"
            )
        return tenant

    def person(self, name: str, tenant=None, role: str = "owner", *, is_staff: bool = False):
        from keys.models import Role, User
        from keys.services import add_member

        user = User.objects.create_user(
            f"{name}-{self.prefix}-{next(_numbers)}@example.test",
            f"{name}-password",
            is_staff=is_staff,
        )
        if tenant is not None:
            add_member(tenant, user, Role(role))
        return user

    def key(self, tenant, name: str = "notebooks", **limits):
        from keys.models import KeyKind
        from keys.services import KeyLimits, create_key

        kind = KeyKind(limits.pop("kind", "live"))
        return create_key(tenant, name, actor="tests", kind=kind, limits=KeyLimits(**limits))

    def price(self, model: str, *, input_price: str = "1", output_price: str = "4", **prices: str):
        from django.utils import timezone

        from billing.models import Price

        return Price.objects.create(
            model=model,
            currency="USD",
            effective_from=timezone.now(),
            input_nanos=nanos_from_text(input_price),
            output_nanos=nanos_from_text(output_price),
            **{f"{name}_nanos": nanos_from_text(text) for name, text in prices.items()},
        )


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """Rows end with the test under `db`, and stay under `committed`."""
    if "committed" not in request.fixturenames:
        request.getfixturevalue("db")
    import uuid

    return World(uuid.uuid4().hex[:8])

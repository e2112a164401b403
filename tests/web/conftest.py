"""Alice owns Acme and Bob views it; Charlie owns another tenant; Dora is staff. It is one day.

`frozen` gives that day, so that nothing here depends on when midnight is.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils.html import strip_tags

from tests.web.relayed import Relayed

NOW = datetime(2026, 12, 15, 14, 20, 5, tzinfo=UTC)
PARTS = re.compile(r"</(?:a|b|code|d[dt]|div|h[1-4]|label|li|p|small|t[dh]|time)>|<span class=")
BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


@pytest.fixture(autouse=True)
def _static_folder(settings, tmp_path) -> None:
    """Whitenoise wants the folder that `collectstatic` makes, and reads it for each client."""
    settings.STATIC_ROOT = tmp_path
    settings.WHITENOISE_USE_FINDERS = False


@pytest.fixture
def quick_passwords(settings) -> None:
    """Argon2 is slow by design, and every test here makes people."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def frozen() -> Iterator[datetime]:
    with time_machine.travel(NOW, tick=False):
        yield NOW


def signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user, backend=BACKEND)
    return client


def confirmed(user: Any) -> Client:
    """A browser of a person who has just shown again who they are."""
    client = signed_in(user)
    password = f"{user.email.partition('-')[0]}-password"
    client.post("/accounts/reauthenticate/", {"password": password})
    return client


@dataclass
class Acme:
    """The people come into being when a test first names them."""

    world: Any
    tenant: Any
    price: Any
    key: Any
    secret: str
    test_key: Any

    @cached_property
    def alice(self) -> Any:
        return self.world.person("alice", self.tenant)

    @cached_property
    def bob(self) -> Any:
        return self.world.person("bob", self.tenant, "viewer")

    @cached_property
    def charlie(self) -> Any:
        return self.world.person("charlie", self.world.tenant("Other"))

    @cached_property
    def dora(self) -> Any:
        return self.world.person("dora", is_staff=True)

    def relayed(self, *, ago: timedelta = timedelta(minutes=5), **more: Any) -> Relayed:
        """Not yet held; under Acme's live key unless told otherwise."""
        usual = {"tenant": self.tenant, "key": self.key, "price": self.price, "at": NOW - ago}
        return Relayed(**{**usual, **more})

    def relayed_in_test(self, **more: Any) -> Relayed:
        return self.relayed(key=self.test_key, price=None, **more)


@pytest.fixture
def acme(world, frozen, quick_passwords) -> Acme:
    tenant = world.tenant("Acme")
    created = world.key(tenant, "ci-agents")
    return Acme(
        world=world,
        tenant=tenant,
        price=world.price(f"model-of-{tenant.slug}", cached_input="0.1"),
        key=created.key,
        secret=created.secret,
        test_key=world.key(tenant, "ci-tests", kind="test").key,
    )


def page_of(response: Any) -> str:
    return response.content.decode()


def text_of(response: Any) -> str:
    """What a reader sees in the page's own part, with single blanks."""
    main = page_of(response).partition("<main")[2]
    parted = PARTS.sub(r" \g<0> ", f"<main{main}")
    return " ".join(html.unescape(strip_tags(parted)).split())


def amounts_of(page: str) -> list[str]:
    """Every amount of money, as a machine reads it, in the order of the page."""
    return re.findall(r'<data class="money[^"]*" value="([^"]+)"', page)

"""Principals by hand, and PostgreSQL as the gateway reaches it, through a proxy to be cut."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from keys.principals import Principal
from tests.proxy import Proxy

PLAIN = Principal(
    key_id=1,
    public_id="0123456789",
    secret_hash=b"",
    kind="live",
    key_name="notebooks",
    allowed_models=None,
    allowed_ips=(),
    requests_per_minute=None,
    concurrent_requests=None,
    expires_at_s=None,
    is_usable=True,
    tenant_id=1,
    tenant_is_active=True,
    currency="USD",
    transcript_policy="content",
)


async def aside(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run what uses Django's ORM beside the event loop, and close what it opened."""
    from django.db import connections

    def run() -> Any:
        try:
            return work(*arguments, **named)
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


@pytest.fixture
def principal() -> Callable[..., Principal]:
    def make(**changes) -> Principal:
        return replace(PLAIN, **changes)

    return make


@pytest.fixture
def database_url(django_db_setup) -> str:
    from gateway.runtime.process import database_url

    return database_url()


@pytest.fixture
def proxy(database_url) -> Iterator[Proxy]:
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    with Proxy(str(parts["host"]), int(parts["port"])) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(database_url, proxy) -> str:
    return psycopg.conninfo.make_conninfo(database_url, host="127.0.0.1", port=proxy.port)

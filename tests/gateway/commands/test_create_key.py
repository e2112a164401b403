from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from gateway.models import Model
from keys import secrets
from keys.models import ApiKey

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme(world):
    return world.tenant("Acme", balance="0")


def test_only_line_on_stdout_is_the_secret(acme, capsys):
    call_command("create_key", tenant=acme.slug, name="ci")
    said = capsys.readouterr()
    key = ApiKey.objects.get()
    secret = said.out.removesuffix("\n")
    assert secrets.matches(secret, bytes(key.secret_hash))
    assert secret not in said.err
    assert key.masked in said.err
    assert (key.tenant, key.kind, key.name) == (acme, "live", "ci")


def test_limits_reach_the_key(acme, capsys):
    Model.objects.create(name="m1")
    Model.objects.create(name="m2")
    arguments = f"--tenant {acme.slug} --name ci --kind test --model m1 --model m2 --rpm 5"
    call_command(
        "create_key", *arguments.split(), "--concurrency", "2", "--expires", "2999-01-31T10:00Z"
    )
    key = ApiKey.objects.get()
    assert (key.kind, key.allowed_models) == ("test", ["m1", "m2"])
    assert (key.requests_per_minute, key.concurrent_requests) == (5, 2)
    assert key.expires_at == datetime(2999, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": ["nothing"]}, "The catalog has no model nothing"),
        ({"rpm": 0}, "requests_per_minute: Enter 1 or more"),
        ({"concurrency": -1}, "concurrent_requests: Enter 1 or more"),
        ({"expires": "2001-01-01"}, "expires_at: Enter a time in the future"),
        ({"expires": "soon"}, "'soon' is no time"),
        ({"name": "  "}, "name: Enter a name"),
        ({"tenant": "nobody"}, "There is no tenant 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_and_makes_nothing(acme, options, words):
    with pytest.raises(CommandError, match=words):
        call_command("create_key", **{"tenant": acme.slug, "name": "ci", **options})
    assert not ApiKey.objects.exists()

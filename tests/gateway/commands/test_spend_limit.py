import pytest
from django.core.management import CommandError, call_command

from billing.models import SpendLimit

pytestmark = pytest.mark.django_db


def run(capsys, *arguments: str) -> list[str]:
    call_command("spend_limit", *arguments)
    return capsys.readouterr().out.splitlines()


def test_a_limit_is_set_raised_listed_and_removed(world, capsys) -> None:
    tenant = world.tenant()
    mine = ("--tenant", tenant.slug)
    (made,) = run(capsys, "set", *mine, "--period", "month", "--amount", "10")
    number = str(SpendLimit.objects.get().pk)
    assert made == f"lim_{number} tenant month hard: 10.000000000 USD"
    (raised,) = run(capsys, "raise", number, "--amount", "20", "--until", "2099-01-01")
    assert raised == f"{made}, 20.000000000 until 2099-01-01 00:00"
    assert run(capsys, "list", *mine) == [raised]
    assert run(capsys, "remove", number) == [f"{raised}, removed"]
    assert run(capsys, "list", *mine) == []


def test_keys_members_and_guards(world, capsys) -> None:
    tenant = world.tenant()
    key, user = world.key(tenant).key, world.person("bob", tenant)
    mine = ("--tenant", tenant.slug)
    amount = ("--period", "day", "--amount", "0")
    (of_key,) = run(capsys, "set", *mine, *amount, "--key", key.public_id, "--warn")
    (of_member,) = run(capsys, "set", *mine, *amount, "--member", user.email)
    guard = ("--key", key.public_id, "--times", "10", "--floor", "5")
    (guards,) = run(capsys, "guard", *mine, *guard, "--pause")
    assert [line.partition(" ")[2] for line in (of_key, of_member, guards)] == [
        "key day warn: 0.000000000 USD",
        "member day hard: 0.000000000 USD",
        "key hour pause: 5.000000000 USD, 10 times the usual hour",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("raise", "1", "--amount", "5", "--until", "2099-01-01"), "no limit lim_1"),
        (("set", "--period", "day", "--amount", "5", "--key", "nobody"), "has no key"),
        (("set", "--period", "day", "--amount", "5", "--member", "nobody"), "no member"),
    ],
)
def test_what_is_unknown_is_said(world, arguments, words) -> None:
    if arguments[0] == "set":
        arguments = (*arguments, "--tenant", world.tenant().slug)
    SpendLimit.objects.all().delete()
    with pytest.raises(CommandError, match=words):
        call_command("spend_limit", *arguments)


def test_a_guard_that_cannot_be_is_refused(world) -> None:
    tenant = world.tenant()
    guard = ("--key", world.key(tenant).key.public_id, "--times", "1", "--floor", "5")
    with pytest.raises(CommandError, match="2 to 1000 times"):
        call_command("spend_limit", "guard", "--tenant", tenant.slug, *guard)
    assert not SpendLimit.objects.exists()

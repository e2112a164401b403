"""`manage.py spend_limit`: set, guard, raise, remove, list."""

from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.errors import BadLimit
from billing.limits import raise_limit, remove_limit, set_guard, set_limit
from billing.models import LimitAction, LimitPeriod, SpendLimit
from billing.money import text_from_nanos
from gateway.management.arguments import moment_of, nanos_of, tenant_of
from keys.models import ApiKey, Tenant, User

ACTOR = "manage.py spend_limit"
PERIODS = [period for period in LimitPeriod.values if period != LimitPeriod.HOUR]


class Command(BaseCommand):
    help = "Limit what a key, a member's keys or a tenant may spend."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        sets = acts.add_parser("set", help="make a limit, or change its amount")
        sets.add_argument("--tenant", required=True, metavar="SLUG")
        sets.add_argument("--period", required=True, choices=PERIODS)
        sets.add_argument("--amount", required=True)
        sets.add_argument("--warn", action="store_true", help="tell only, refuse nothing")
        whose = sets.add_mutually_exclusive_group()
        whose.add_argument("--key", metavar="PUBLIC_ID")
        whose.add_argument("--member", metavar="EMAIL")
        guards = acts.add_parser("guard", help="watch a key's hourly spend")
        guards.add_argument("--tenant", required=True, metavar="SLUG")
        guards.add_argument("--key", required=True, metavar="PUBLIC_ID")
        guards.add_argument("--times", required=True, type=int, metavar="N", help="the usual hour")
        guards.add_argument("--floor", required=True, help="less in an hour is never remarkable")
        guards.add_argument("--pause", action="store_true", help="pause the key; else warn")
        raises = acts.add_parser("raise", help="let more be spent until a moment")
        raises.add_argument("number", type=int, metavar="N", help="of lim_N")
        raises.add_argument("--amount", required=True)
        raises.add_argument("--until", required=True, metavar="TIME")
        removes = acts.add_parser("remove", help="refuse and count nothing from now on")
        removes.add_argument("number", type=int, metavar="N", help="of lim_N")
        lists = acts.add_parser("list", help="a tenant's limits")
        lists.add_argument("--tenant", required=True, metavar="SLUG")

    def handle(self, *_args: Any, **options: Any) -> None:
        acts: dict[str, Callable[[dict[str, Any]], list[SpendLimit]]] = {
            "set": _set,
            "guard": _guard,
            "raise": _raise,
            "remove": _remove,
            "list": lambda options: list(
                SpendLimit.objects.filter(
                    account__tenant=tenant_of(options["tenant"]), removed_at=None
                ).order_by("pk")
            ),
        }
        try:
            for limit in acts[options["act"]](options):
                self.stdout.write(_line(limit))
        except BadLimit as error:
            raise CommandError(str(error)) from error


def _set(options: dict[str, Any]) -> list[SpendLimit]:
    tenant, email = tenant_of(options["tenant"]), options["member"]
    user = None if email is None else User.objects.filter(email__iexact=email).first()
    if email is not None and user is None:
        raise CommandError(f"There is no member {email!r}.")
    limit = set_limit(
        tenant,
        LimitPeriod(options["period"]),
        nanos_of(options["amount"], may_be_zero=True),
        action=LimitAction.WARN if options["warn"] else LimitAction.HARD,
        key=None if options["key"] is None else _key(tenant, options["key"]),
        user=user,
        actor=ACTOR,
    )
    return [limit]


def _guard(options: dict[str, Any]) -> list[SpendLimit]:
    key = _key(tenant_of(options["tenant"]), options["key"])
    action = LimitAction.PAUSE if options["pause"] else LimitAction.WARN
    floor = nanos_of(options["floor"], may_be_zero=True)
    return [set_guard(key, options["times"], floor, action=action, actor=ACTOR)]


def _raise(options: dict[str, Any]) -> list[SpendLimit]:
    limit, until = _limit(options["number"]), moment_of(options["until"])
    return [raise_limit(limit, nanos_of(options["amount"]), until=until, actor=ACTOR)]


def _remove(options: dict[str, Any]) -> list[SpendLimit]:
    limit = _limit(options["number"])
    remove_limit(limit, actor=ACTOR)
    return [limit]


def _key(tenant: Tenant, public_id: str) -> ApiKey:
    key = ApiKey.objects.filter(tenant=tenant, public_id=public_id).first()
    if key is None:
        raise CommandError(f"{tenant.slug} has no key {public_id!r}.")
    return key


def _limit(number: int) -> SpendLimit:
    limit = SpendLimit.objects.filter(pk=number).first()
    if limit is None:
        raise CommandError(f"There is no limit lim_{number}.")
    return limit


def _line(limit: SpendLimit) -> str:
    amount = f"{text_from_nanos(limit.amount_nanos)} {limit.account.currency}"
    words = f"{limit.public_id} {limit.scope} {limit.period} {limit.action}: {amount}"
    if limit.times is not None:
        words += f", {limit.times} times the usual hour"
    if limit.raised_until is not None and limit.raised_nanos is not None:
        raised = text_from_nanos(limit.raised_nanos)
        words += f", {raised} until {limit.raised_until:%Y-%m-%d %H:%M}"
    return words if limit.removed_at is None else f"{words}, removed"

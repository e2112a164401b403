"""`manage.py adjust_wallet`: propose, refund, approve, decline, list. By people of the staff."""

from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.adjustments import adjust, approve, decline, refund
from billing.errors import BadAdjustment, InsufficientFunds
from billing.models import Adjustment, AdjustmentState, Payment
from billing.money import text_from_nanos
from gateway.management.arguments import nanos_of, staff_of, tenant_of


class Command(BaseCommand):
    help = "Correct a wallet or refund a payment; above a threshold it takes two people."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        for act, sign in (("give", "gains"), ("take", "loses")):
            moves = acts.add_parser(act, help=f"the wallet {sign} an amount")
            moves.add_argument("--tenant", required=True, metavar="SLUG")
            _add_why(moves)
        refunds = acts.add_parser("refund", help="give a payment back, or a part of it")
        refunds.add_argument("--payment", required=True, metavar="ID")
        _add_why(refunds)
        for act in ("approve", "decline"):
            decides = acts.add_parser(act, help=f"{act} what another person proposed")
            decides.add_argument("number", type=int, metavar="N", help="of adj_N")
            decides.add_argument("--by", required=True, metavar="EMAIL")
            decides.add_argument("--reason", default="")
        acts.add_parser("list", help="what waits for a second person")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["act"] == "list":
            for adjustment in Adjustment.objects.filter(state=AdjustmentState.PROPOSED):
                self.stdout.write(_line(adjustment))
            return
        acts: dict[str, Callable[[dict[str, Any]], Adjustment]] = {
            "give": lambda options: _adjust(options, 1),
            "take": lambda options: _adjust(options, -1),
            "refund": _refund,
            "approve": lambda options: approve(options["number"], actor=staff_of(options["by"])),
            "decline": lambda options: decline(
                options["number"], actor=staff_of(options["by"]), reason=options["reason"]
            ),
        }
        try:
            self.stdout.write(_line(acts[options["act"]](options)))
        except (BadAdjustment, InsufficientFunds) as error:
            raise CommandError(str(error)) from error


def _add_why(parser: CommandParser) -> None:
    parser.add_argument("--amount", required=True)
    parser.add_argument("--reason", required=True)
    parser.add_argument("--by", required=True, metavar="EMAIL")


def _adjust(options: dict[str, Any], sign: int) -> Adjustment:
    return adjust(
        tenant_of(options["tenant"]),
        sign * nanos_of(options["amount"]),
        actor=staff_of(options["by"]),
        reason=options["reason"],
    )


def _refund(options: dict[str, Any]) -> Adjustment:
    payment = Payment.objects.filter(external_id=options["payment"]).first()
    if payment is None:
        raise CommandError(f"There is no payment {options['payment']!r}.")
    return refund(
        payment,
        nanos_of(options["amount"]),
        actor=staff_of(options["by"]),
        reason=options["reason"],
    )


def _line(adjustment: Adjustment) -> str:
    amount = f"{text_from_nanos(adjustment.amount_nanos)} {adjustment.currency}"
    who = adjustment.decided_by or adjustment.proposed_by
    return f"{adjustment} {adjustment.state}: {adjustment.tenant.slug} {amount}, by {who}"

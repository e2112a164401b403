"""Money is an integer of 10⁻⁹ currency units, named `…_nanos`. No float comes near it."""

from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow

NANOS_PER_UNIT = 1_000_000_000
NANOS_PER_CENT = NANOS_PER_UNIT // 100
DECIMALS = 9
TOKENS_PER_PRICE = 1_000_000  # prices are per million tokens
BASIS_POINTS = 10_000
NANOS_MAX = 2**63 - 1  # what a column holds

_EXACT = Context(prec=28, traps=[InvalidOperation, DivisionByZero, Overflow, Inexact])


class NotMoney(ValueError):
    """A text that is no amount of at most nine decimals."""


def nanos_from_text(text: str) -> int:
    """`"12.5"` → 12_500_000_000, exactly: what would have to be rounded raises NotMoney."""
    try:
        amount = Decimal(text)
        is_sound = amount.is_finite() and amount.adjusted() < _EXACT.prec - DECIMALS
        nanos = _EXACT.scaleb(amount, DECIMALS) if is_sound else Decimal("0.5")
    except (InvalidOperation, Inexact):
        raise NotMoney(f"{text!r} is no amount.") from None
    if nanos != nanos.to_integral_value():
        raise NotMoney(f"{text!r} is no amount with at most {DECIMALS} decimals.")
    if abs(nanos) > NANOS_MAX:
        raise NotMoney(f"{text!r} is beyond any amount.")
    return int(nanos)


def text_from_nanos(nanos: int) -> str:
    """987_751 → `"0.000987751"`: always nine decimals."""
    sign = "-" if nanos < 0 else ""
    units, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    return f"{sign}{units}.{rest:0{DECIMALS}d}"


def price_of(quantity: int, price_nanos_per_million: int) -> int:
    """Nanos for `quantity` tokens, exact until here and rounded once, half up."""
    return _half_up(quantity * price_nanos_per_million, TOKENS_PER_PRICE)


def at_factor(unit_nanos: int, factor_bps: int) -> int:
    """A list price under a discount or markup, rounded to a nano, half up. 10_000 is unchanged."""
    return _half_up(unit_nanos * factor_bps, BASIS_POINTS)


def _half_up(numerator: int, denominator: int) -> int:
    return (numerator + denominator // 2) // denominator

"""Money is an integer of 10⁻⁹ currency units, named `…_nanos`. No float comes near it."""

from decimal import Decimal, InvalidOperation

NANOS_PER_UNIT = 1_000_000_000
DECIMALS = 9
TOKENS_PER_PRICE = 1_000_000  # prices are per million tokens


class NotMoney(ValueError):
    """A text that is no amount of at most nine decimals."""


def nanos_from_text(text: str) -> int:
    """`"12.5"` → 12_500_000_000, exactly. Raises NotMoney."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise NotMoney(f"{text!r} is no amount.") from None
    nanos = amount.scaleb(DECIMALS) if amount.is_finite() else Decimal("0.5")
    if nanos != nanos.to_integral_value():
        raise NotMoney(f"{text!r} is no amount with at most {DECIMALS} decimals.")
    return int(nanos)


def text_from_nanos(nanos: int) -> str:
    """987_751 → `"0.000987751"`: always nine decimals."""
    sign = "-" if nanos < 0 else ""
    units, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    return f"{sign}{units}.{rest:0{DECIMALS}d}"


def price_of(quantity: int, price_nanos_per_million: int) -> int:
    """Nanos for `quantity` tokens, exact until here and rounded once, half up."""
    return (quantity * price_nanos_per_million + TOKENS_PER_PRICE // 2) // TOKENS_PER_PRICE

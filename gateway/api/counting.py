"""What a chat completion would cost before it is sent: its tokens, and their price at the plan."""

from dataclasses import dataclass

from django.utils import timezone

from billing.corrections import in_force, value_of
from billing.estimation import corrected_prompt
from billing.estimation.aside import ASIDE, NotCountedError
from billing.estimation.estimates import Count
from billing.rating import PriceVersion, hold_nanos, rate
from billing.usage import Usage
from gateway import errors
from gateway.api.selectors import OfferedModel
from gateway.exchanges.charge import PriceLine
from gateway.relay.request import ClientRequest


@dataclass(frozen=True, slots=True)
class Quote:
    """`lines` are of the prompt alone; `worst_nanos` has all that the answer may come to as well.

    `output_tokens` is the most of all choices together. `price` is None where a test key's model
    has none, and then nothing costs anything.
    """

    counted: Count
    output_tokens: int
    price: PriceVersion | None
    lines: tuple[PriceLine, ...]
    worst_nanos: int


def quote(request: ClientRequest, offered: OfferedModel) -> Quote:
    """Count the prompt as the model's first route has it. Raises ApiError 503: not now."""
    model, price = offered.model, offered.price
    route = model.first_route()
    if route is None:
        raise errors.model_not_found()
    try:
        counted = ASIDE.count_prompt(
            request.payload, model=route.vendor_model, family=route.family or model.family
        )
    except NotCountedError as error:
        raise errors.service_unavailable() from error
    learnt = value_of(in_force(route.vendor.name, route.vendor_model, timezone.now()))
    counted = corrected_prompt(counted, learnt)
    asked = request.max_output_tokens or model.default_output_tokens
    output_tokens = min(asked, model.max_output_tokens) * request.n
    return Quote(
        counted=counted,
        output_tokens=output_tokens,
        price=price,
        lines=() if price is None else _lines(counted.tokens, price),
        worst_nanos=0 if price is None else hold_nanos(counted.tokens, output_tokens, price),
    )


def _lines(tokens: int, price: PriceVersion) -> tuple[PriceLine, ...]:
    lines = rate(Usage(input_tokens=tokens), price)
    return tuple(PriceLine.of(line, "estimate") for line in lines if line.quantity)

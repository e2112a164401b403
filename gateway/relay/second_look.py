"""Before money refuses a request: its prompt counted, where only the bound may be in the way.

A bound of a new text can be several times its count. Who has little money left would be refused
for tokens that nobody will charge. So the prompt is counted beside the gateway (it takes a whole
vocabulary), but only where that can change the answer: a tenant without money costs no count.
"""

import asyncio
from typing import Final

from billing.estimation import corrected_prompt
from billing.estimation.aside import ASIDE, NotCountedError
from billing.ledger import HoldAnswer
from billing.rating import PriceVersion, hold_nanos
from gateway.relay.request import ClientRequest
from gateway.runtime.snapshot import PublicModel, RouteTo

LOOSEST: Final = 5
"""A bound is at most so many times its count (docs/estimation.md)."""
WAIT_S: Final = 0.5
WITHIN_S: Final = 3.0


async def counted_prompt(
    request: ClientRequest,
    model: PublicModel,
    route: RouteTo,
    refused: HoldAnswer,
    *,
    bound_tokens: int,
    output_tokens: int,
    price: PriceVersion,
) -> int | None:
    """The prompt's tokens, if they fit where `bound_tokens` did not. None: the refusal stands."""
    room_nanos = refused.room_nanos
    if hold_nanos(bound_tokens // LOOSEST, output_tokens, price) > room_nanos:
        return None
    try:
        counted = await asyncio.to_thread(
            ASIDE.count_prompt,
            request.payload,
            model=route.vendor_model,
            family=route.family or model.family,
            wait_s=WAIT_S,
            within_s=WITHIN_S,
        )
    except NotCountedError:
        return None
    tokens = corrected_prompt(counted, route.correction).tokens
    fits = hold_nanos(tokens, output_tokens, price) <= room_nanos
    return tokens if fits else None

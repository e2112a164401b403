"""What is known of a request once it may go to a vendor: the result of steps 1 to 5."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.rating import PriceVersion
from gateway.relay.headers import Headers
from gateway.relay.idempotency import Claim
from gateway.relay.request import ClientRequest
from gateway.runtime.limits import Grant
from gateway.runtime.snapshot import PublicModel, RouteTo
from keys.principals import Principal


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in. `started_s` is the event loop's clock."""

    exchange_id: UUID
    request_id: str
    started_s: float
    created_at: datetime
    path: str
    http_version: str
    headers: Headers
    client_address: str
    client_request_id: str | None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Accepted:
    """`price` is None for a test key: nothing is charged.

    `prompt_bound` and `output_bound` are the tokens that the hold covers, the latter a choice.
    """

    arrival: Arrival
    principal: Principal
    request: ClientRequest
    model: PublicModel
    routes: list[RouteTo]
    price: PriceVersion | None
    currency: str
    hold_nanos: int
    prompt_bound: int
    output_bound: int
    grant: Grant
    claim: Claim | None = None

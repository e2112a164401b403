"""`POST /v1/chat/completions`: steps 1 to 5 of an exchange, then the driver.

It is a DRF view: its authentication, parser, exceptions and schema are DRF's. Its `dispatch` is
its own, for one reason: DRF's is synchronous, and every hop between the event loop and a thread
costs more than all that happens here. gateway.hotpath calls it without Django's middleware, whose
work (sessions, CSRF, CSP) concerns pages.
"""

import asyncio
import logging
import re
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.http import HttpRequest
from psycopg_pool import PoolTimeout
from rest_framework.views import APIView

from billing.errors import LedgerUnavailable, QueueFull
from billing.estimation import prompt_bound
from billing.ids import new_exchange_id, request_id
from billing.ledger import Hold, HoldAnswer, hold_answer
from billing.money import text_from_nanos
from billing.rating import PriceVersion, hold_nanos
from billing.writer import Row
from gateway import errors
from gateway.api.authentication import KeyAuthentication, bearer_text
from gateway.api.renderers import AlwaysJson, OrjsonRenderer
from gateway.errors import ApiError
from gateway.relay.accepted import Accepted, Arrival
from gateway.relay.headers import Headers, encoded
from gateway.relay.idempotency import HEADER as IDEMPOTENCY_KEY
from gateway.relay.idempotency import Claim, Replay
from gateway.relay.refusals import money_refusal, rate_refusal
from gateway.relay.request import ClientRequest, read_request
from gateway.relay.routing import in_order, prompt_key
from gateway.relay.second_look import counted_prompt
from gateway.relay.settling import release_unanswered
from gateway.runtime.limits import NO_LIMITS, Allowance, Grant, allowances, limit_headers
from gateway.runtime.process import Runtime
from gateway.runtime.snapshot import PublicModel, RouteTo
from gateway.runtime.tariffs import Terms
from keys.principals import Principal

logger = logging.getLogger(__name__)

CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
POSTGRES_AWAY = (psycopg.OperationalError, PoolTimeout, OSError, LedgerUnavailable)


class ChatCompletionsView(APIView):
    authentication_classes = (KeyAuthentication,)
    content_negotiation_class = AlwaysJson
    renderer_classes = (OrjsonRenderer,)
    runtime: Runtime

    async def dispatch(  # type: ignore[override]
        self, request: HttpRequest, *_args: Any, **_kwargs: Any
    ) -> "Relayed":
        """Answer what is to be sent: an exchange that may go to a vendor, or an error."""
        work = _Admission(self.runtime, _arrival(request))
        try:
            return await work.admit(request.body)
        except ApiError as error:
            return work.refused(error)
        except POSTGRES_AWAY as error:
            logger.warning("PostgreSQL does not answer: %s", type(error).__name__)
            return work.refused(errors.service_unavailable())
        except Exception:
            logger.exception("Request %s failed before any vendor was asked", work.request_id)
            return work.refused(errors.internal_error(money_may_have_moved=False))


class Relayed:
    """The view's answer: headers that every answer carries, and what follows."""

    def __init__(self, headers: Headers, outcome: Accepted | ApiError | Replay) -> None:
        self.headers = headers
        self.outcome = outcome


class _Admission:
    """One request between its arrival and its hold. Each step answers or raises ApiError."""

    def __init__(self, runtime: Runtime, arrival: Arrival) -> None:
        self._runtime = runtime
        self._arrival = arrival
        self._principal: Principal | None = None
        self._request: ClientRequest | None = None
        self._grant: Grant = NO_LIMITS
        self._hold_nanos: int | None = None
        self._claimed: Claim | None = None
        self._now_s = time.time()

    @property
    def request_id(self) -> str:
        return self._arrival.request_id

    async def admit(self, body: bytes) -> Relayed:
        principal = await self._authenticate()
        request = self._read(body)
        replay = await self._claim(principal, request)
        if replay is not None:
            return Relayed([], replay)
        try:
            return await self._admit(principal, request)
        except BaseException:
            await self._give_back()
            raise

    async def _admit(self, principal: Principal, request: ClientRequest) -> Relayed:
        model, routes, price = self._resolve(principal, request)
        self._grant = await self._runtime.limiter.take(self._limits(principal), self.request_id)
        if not self._grant.is_allowed:
            raise rate_refusal(self._grant, datetime.now(UTC))
        try:
            return await self._hold(principal, request, model, routes, price)
        except BaseException:
            self._runtime.limiter.give_back(self._grant)
            raise

    def _terms(self, principal: Principal) -> Terms | None:
        tariffs = self._runtime.snapshot.tariffs
        return tariffs.terms_for(principal.tenant_id, principal.currency, self._now_s)

    def _limits(self, principal: Principal) -> tuple[Allowance, ...]:
        terms = self._terms(principal)
        if terms is None:
            return allowances(principal, None, None)
        return allowances(principal, terms.requests_per_minute, terms.concurrent_requests)

    async def _claim(self, principal: Principal, request: ClientRequest) -> Replay | None:
        """Claim the request's Idempotency-Key, if it has one; answer what a repeat gets."""
        key = dict(self._arrival.headers).get(IDEMPOTENCY_KEY)
        if key is None:
            return None
        claimed = await self._runtime.idempotency.claim(
            principal.tenant_id, key.decode("latin-1"), request.payload, self._arrival.exchange_id
        )
        if isinstance(claimed, Replay):
            return claimed
        self._claimed = claimed
        return None

    async def _give_back(self) -> None:
        """What was refused here has cost nothing: its key may be used by a real retry."""
        if self._claimed is not None:
            await self._runtime.idempotency.release(self._claimed)

    def refused(self, error: ApiError) -> Relayed:
        if self._principal is not None:
            self._record_refusal(self._principal, error)
        return Relayed(self._headers(), error)

    async def _authenticate(self) -> Principal:
        text = bearer_text(self._arrival.headers)
        principal = await self._runtime.principals.authenticate(text) if text else None
        if principal is None:
            raise errors.invalid_api_key()
        self._principal = principal
        self._runtime.key_uses.note(principal.key_id)
        if not principal.tenant_is_active:
            raise errors.tenant_suspended()
        if not principal.may_come_from(self._arrival.client_address):
            raise errors.ip_not_allowed()
        return principal

    def _read(self, body: bytes) -> ClientRequest:
        headers = dict(self._arrival.headers)
        self._request = read_request(
            body,
            content_type=headers.get(b"content-type", b"").decode("latin-1"),
            content_encoding=headers.get(b"content-encoding", b"").decode("latin-1"),
        )
        return self._request

    def _resolve(
        self, principal: Principal, request: ClientRequest
    ) -> tuple[PublicModel, list[RouteTo], PriceVersion | None]:
        model = self._runtime.snapshot.models.get(request.model)
        if model is None:
            raise errors.model_not_found()
        if not principal.may_use_model(model.name):
            raise errors.model_not_allowed()
        terms = self._terms(principal)
        if terms is not None and not terms.may_use_model(model.name):
            raise errors.model_not_in_plan()
        if principal.is_test:
            if model.test_route is None:
                raise errors.upstream_unavailable()
            return model, [model.test_route], None
        tariffs = self._runtime.snapshot.tariffs
        price = tariffs.price_for(model.name, principal.currency, self._now_s, terms)
        if price is None:
            raise errors.model_not_priced()
        if not model.routes:
            raise errors.upstream_unavailable()
        return model, self._routes(principal, request, model), price

    def _routes(
        self, principal: Principal, request: ClientRequest, model: PublicModel
    ) -> list[RouteTo]:
        """Those that take calls now, in the order in which they are tried."""
        routes = self._runtime.breakers.open_to(model.routes)
        if not routes:
            raise self._runtime.breakers.refusal(model.routes)
        if len(routes) == 1 or not model.sticky_routes:
            return in_order(routes)
        return in_order(routes, prompt_key(principal.tenant_id, model.name, request.payload))

    async def _hold(
        self,
        principal: Principal,
        request: ClientRequest,
        model: PublicModel,
        routes: list[RouteTo],
        price: PriceVersion | None,
    ) -> Relayed:
        asked = request.max_output_tokens or model.default_output_tokens
        output_bound = min(asked, model.max_output_tokens)
        output_tokens = output_bound * request.n
        prompt = 0
        if price is not None and not price.is_free:
            prompt = prompt_bound(
                request.payload,
                model=routes[0].vendor_model,
                family=routes[0].family or model.family,
                correction=routes[0].correction,
            )
        nanos, answer = await self._reserve(principal, request, model, price, prompt, output_tokens)
        if not answer.is_held and price is not None:
            counted = await counted_prompt(
                request,
                model,
                routes[0],
                answer,
                bound_tokens=prompt,
                output_tokens=output_tokens,
                price=price,
            )
            if counted is not None:
                prompt = counted
                nanos, answer = await self._reserve(
                    principal, request, model, price, prompt, output_tokens
                )
        if not answer.is_held:
            raise money_refusal(answer, nanos)
        self._hold_nanos = nanos
        accepted = Accepted(
            arrival=self._arrival,
            principal=principal,
            request=request,
            model=model,
            routes=routes,
            price=price,
            currency=principal.currency,
            hold_nanos=nanos,
            prompt_bound=prompt,
            output_bound=output_bound,
            grant=self._grant,
            claim=self._claimed,
        )
        return Relayed(self._headers(), accepted)

    async def _reserve(
        self,
        principal: Principal,
        request: ClientRequest,
        model: PublicModel,
        price: PriceVersion | None,
        prompt_tokens: int,
        output_tokens: int,
    ) -> tuple[int, HoldAnswer]:
        """Hold what so many tokens can cost at most; that many nanos, and what became of it."""
        arrival = self._arrival
        nanos = 0 if price is None else hold_nanos(prompt_tokens, output_tokens, price)
        hold = Hold(
            exchange_id=arrival.exchange_id,
            tenant_id=principal.tenant_id,
            key_id=principal.key_id,
            process_id=self._runtime.process_id,
            price_id=price.id if price is not None else None,
            terms_id=price.terms_id if price is not None else None,
            hold_nanos=nanos,
            currency=principal.currency,
            model=model.name,
            created_at=arrival.created_at,
            is_stream=request.stream,
            is_test=principal.is_test,
            client_request_id=arrival.client_request_id,
        )
        return nanos, hold_answer(await self._submit(hold))

    async def _submit(self, hold: Hold) -> Row:
        try:
            return await self._runtime.holds.submit(hold.item())
        except QueueFull:
            raise
        except POSTGRES_AWAY:
            self._runtime.background.start(release_unanswered(self._runtime, hold), "late hold")
            raise

    def _headers(self) -> Headers:
        headers = [("x-request-id", self.request_id), *limit_headers(self._grant)]
        if self._hold_nanos is not None:
            headers.append(("x-farthing-hold", text_from_nanos(self._hold_nanos)))
        if self._arrival.client_request_id is not None:
            headers.append(("x-client-request-id", self._arrival.client_request_id))
        return encoded(headers)

    def _record_refusal(self, principal: Principal, error: ApiError) -> None:
        """Keep it at zero, off the path. Under a flood of refusals the queue's bound decides."""
        now = datetime.now(UTC)
        duration_s = asyncio.get_running_loop().time() - self._arrival.started_s
        item = {
            "id": self._arrival.exchange_id,
            "tenant_id": principal.tenant_id,
            "key_id": principal.key_id,
            "process_id": self._runtime.process_id,
            "created_at": self._arrival.created_at,
            "ended_at": now,
            "duration_ms": round(duration_s * 1_000),
            "status_code": error.status,
            "is_test": principal.is_test,
            "is_stream": self._request is not None and self._request.stream,
            "currency": principal.currency,
            "model": self._request.model if self._request is not None else "",
            "error_code": error.code,
            "client_request_id": self._arrival.client_request_id,
            "message": {
                "vendor_status": None,
                "vendor_message": None,
                "user_status": error.status,
                "user_message": error.message,
                **({} if error.why is None else {"limit": error.why}),
            },
        }
        try:
            kept = self._runtime.refusals.submit(item)
        except LedgerUnavailable:
            logger.warning("Refusal %s is not kept: the queue is full", self.request_id)
            return
        kept.add_done_callback(_log_lost)


def _log_lost(kept: asyncio.Future[Any]) -> None:
    if not kept.cancelled() and kept.exception() is not None:
        logger.warning("A refusal is not kept: %s", type(kept.exception()).__name__)


def _arrival(request: HttpRequest) -> Arrival:
    scope: Any = request.scope  # type: ignore[attr-defined]
    headers: Headers = scope["headers"]
    found = dict(headers)
    exchange_id = new_exchange_id()
    client = scope.get("client") or ("", 0)
    named = found.get(b"x-client-request-id", b"").decode("latin-1")
    return Arrival(
        exchange_id=exchange_id,
        request_id=request_id(exchange_id),
        started_s=asyncio.get_running_loop().time(),
        created_at=datetime.now(UTC),
        path=scope["path"],
        http_version=scope.get("http_version", "1.1"),
        headers=headers,
        client_address=client[0],
        client_request_id=named if CLIENT_REQUEST_ID.fullmatch(named) else None,
        body=request.body,
    )

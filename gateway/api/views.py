"""The read side of /v1/: what a key may use, what it did, what is left."""

from typing import Any, cast

from csp.constants import SELF
from csp.decorators import csp_update
from django.http import HttpRequest
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.generic import TemplateView
from drf_spectacular.plumbing import resolve_type_hint
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.ids import exchange_id_of, new_exchange_id, request_id
from gateway import errors
from gateway.api import shapes
from gateway.api.counting import quote
from gateway.api.schema import (
    CHAT_REQUEST_SCHEMA,
    COUNT_DESCRIPTION,
    COUNT_REFUSALS,
    ERROR_SCHEMA,
    IDEMPOTENCY_KEY,
    RELAY_DESCRIPTION,
    RELAY_REFUSALS,
    answers,
    document,
)
from gateway.api.selectors import key_standing, model_for, models_for, usable_model, wallet_of
from gateway.exchanges.selectors import exchange_row
from gateway.relay.request import MAX_BODY_BYTES, read_request
from keys.principals import Principal


class ApiView(APIView):
    """A view of the API: JSON, never cached, with an id for every answer."""

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)
        response["x-request-id"] = request_id(new_exchange_id())
        response["cache-control"] = "no-store"
        return response

    def get_authenticators(self) -> Any:
        """A question for the allowed methods needs no key: a browser sends none with it."""
        is_options = self.request is not None and self.request.method == "OPTIONS"
        return [] if is_options else super().get_authenticators()

    def get_permissions(self) -> Any:
        return [] if self.request.method == "OPTIONS" else super().get_permissions()

    @extend_schema(exclude=True)
    def options(self, request: HttpRequest, *_args: Any, **_kwargs: Any) -> Response:  # noqa: ARG002
        return Response(status=204, headers={"allow": ", ".join(self.allowed_methods)})


class ModelsView(ApiView):
    @answers(
        shapes.ModelListShape,
        operation="list_models",
        summary="List the models that this key may use",
    )
    def get(self, request: Request) -> Response:
        data = [
            shapes.model_shape(offered.model, offered.price)
            for offered in models_for(_principal(request))
        ]
        return _answer(shapes.ModelListShape(object="list", data=data))


class ModelView(ApiView):
    @answers(
        shapes.ModelShape,
        operation="show_model",
        summary="Show one model with its prices",
        may_be_missing=True,
    )
    def get(self, request: Request, model: str) -> Response:
        offered = model_for(_principal(request), model)
        if offered is None:
            raise errors.model_not_found()
        return _answer(shapes.model_shape(offered.model, offered.price))


class RequestView(ApiView):
    @answers(
        shapes.RequestShape,
        operation="show_request",
        summary="Explain one request: its usage, its charge, its attempts",
        may_be_missing=True,
    )
    def get(self, request: Request, request_id: str) -> Response:
        """Found by the `x-request-id` of an answer and by the `id` of a completion."""
        exchange_id = exchange_id_of(request_id)
        row = None
        if exchange_id is not None:
            row = exchange_row(_principal(request).tenant_id, exchange_id)
        if row is None:
            raise errors.not_found()
        return _answer(shapes.request_shape(row))


class KeyView(ApiView):
    @answers(
        shapes.KeyShape,
        operation="show_key",
        summary="Show this key: its limits, and what it has spent",
    )
    def get(self, request: Request) -> Response:
        principal = _principal(request)
        standing = key_standing(principal)
        shape = shapes.key_shape(
            standing.key,
            currency=principal.currency,
            spent_nanos=standing.spent_nanos,
            spent_since=standing.spent_since,
            last_used_at=standing.last_used_at,
            spend_limits=standing.spend_limits,
        )
        return _answer(shape)


class BalanceView(ApiView):
    @answers(
        shapes.BalanceShape,
        operation="show_balance",
        summary="Show the balance of this key's organisation",
    )
    def get(self, request: Request) -> Response:
        wallet = wallet_of(_principal(request))
        return _answer(shapes.balance_shape(wallet, as_of=timezone.now()))


class ChatCompletionsView(ApiView):
    """The relay's path for the schema, and for every method but POST: see gateway.hotpath."""

    @extend_schema(
        operation_id="create_chat_completion",
        summary="Relay a chat completion",
        description=RELAY_DESCRIPTION,
        parameters=[IDEMPOTENCY_KEY],
        request=CHAT_REQUEST_SCHEMA,
        responses={
            (200, "application/json"): {"type": "object", "description": "A chat.completion"},
            (200, "text/event-stream"): {"description": "Events, and [DONE] behind them"},
            **dict.fromkeys(RELAY_REFUSALS, ERROR_SCHEMA),
        },
    )
    def post(self, request: Request) -> Response:  # noqa: ARG002
        """Say that the relay is not there: a server that got here started without it."""
        raise errors.service_unavailable()


class TokenCountView(ApiView):
    @extend_schema(
        operation_id="count_tokens",
        summary="Count a chat completion's prompt, and say what it would cost",
        description=COUNT_DESCRIPTION,
        request=CHAT_REQUEST_SCHEMA,
        responses={
            200: resolve_type_hint(shapes.TokenCountShape),  # type: ignore[no-untyped-call]
            **dict.fromkeys(COUNT_REFUSALS, ERROR_SCHEMA),
        },
    )
    def post(self, request: Request) -> Response:
        asked = read_request(
            request.read(MAX_BODY_BYTES + 1),  # a form's own bound is far below a prompt's
            content_type=request.headers.get("content-type", ""),
            content_encoding=request.headers.get("content-encoding", ""),
        )
        offered = usable_model(_principal(request), asked.model)
        return _answer(shapes.token_count_shape(offered.model, quote(asked, offered)))


class OpenApiView(ApiView):
    """The OpenAPI document of /v1/, for anybody."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def get(self, request: Request) -> Response:  # noqa: ARG002
        return _answer(document())


@method_decorator(csp_update({"img-src": [SELF, "data:"]}), name="dispatch")  # Swagger's icons
class DocsView(TemplateView):
    """The OpenAPI document as a page to read and to try."""

    template_name = "api/docs.html"


class NothingView(ApiView):
    """Every other path: 404 in OpenAI's shape, with or without a key, whatever the method."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def initial(self, request: Request, *_args: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        raise errors.not_found()


def _principal(request: Request) -> Principal:
    return cast("Principal", request.auth)


def _answer(shape: Any) -> Response:
    return Response(shape)

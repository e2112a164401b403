"""Every exception of a view as an error in OpenAI's shape; none shows a trace or a word of SQL."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from gateway import errors
from gateway.errors import ApiError
from gateway.relay.request import MAX_BODY_BYTES

logger = logging.getLogger(__name__)


def openai_shape(exception: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler."""
    set_rollback()
    error = _api_error(exception)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and error is not exception:
        view = type(context.get("view")).__name__
        logger.error("%s failed: %s", view, type(exception).__name__, exc_info=exception)
    response = Response(error.as_dict(), status=error.status)
    for name, value in error.headers():
        response[name] = value
    if isinstance(exception, exceptions.MethodNotAllowed):
        response["allow"] = ", ".join(_allowed(context))
    if error.status == HTTPStatus.UNAUTHORIZED:
        response["www-authenticate"] = "Bearer"
    return response


def _api_error(exception: Exception) -> ApiError:
    if isinstance(exception, ApiError):
        return exception
    for kinds, error in _TABLE:
        if isinstance(exception, kinds):
            return error()
    if isinstance(exception, exceptions.ValidationError):
        return _invalid(exception.detail)
    if isinstance(exception, exceptions.APIException) and _is_clients_fault(exception.status_code):
        return _refused(exception)
    return errors.internal_error(money_may_have_moved=False)


def _is_clients_fault(status: int) -> bool:
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR


def _unreadable() -> ApiError:
    return errors.invalid_request(
        "The request cannot be read.", param="body", code="invalid_request"
    )


_TABLE: tuple[tuple[tuple[type[Exception], ...], Callable[[], ApiError]], ...] = (
    ((OperationalError, InterfaceError), errors.service_unavailable),
    ((exceptions.NotAuthenticated, exceptions.AuthenticationFailed), errors.invalid_api_key),
    ((exceptions.PermissionDenied, PermissionDenied), errors.scope_not_allowed),
    ((exceptions.NotFound, Http404), errors.not_found),
    ((RequestDataTooBig,), lambda: errors.too_large(MAX_BODY_BYTES)),
    ((exceptions.ParseError, SuspiciousOperation), _unreadable),
)
"""The first row that fits is the answer; a class stands before those it inherits from."""


def _refused(exception: exceptions.APIException) -> ApiError:
    """Return DRF's own refusals: a wrong method, a wrong media type."""
    code = str(exception.default_code)
    message = f"{str(exception.detail).rstrip('.')}. {errors.NOT_CHARGED}"
    return ApiError(exception.status_code, errors.INVALID_REQUEST, code, message)


def _invalid(detail: Any) -> ApiError:
    """Return the first complaint of a serializer, with the field that it is about."""
    param = None
    while isinstance(detail, dict | list) and detail:
        if isinstance(detail, dict):
            param, detail = next(iter(detail.items()))
        else:
            detail = detail[0]
    return errors.invalid_request(str(detail), param=param)


def _allowed(context: Mapping[str, Any]) -> list[str]:
    view = context.get("view")
    return [] if view is None else list(view.allowed_methods)

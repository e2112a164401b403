import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.views import APIView

from gateway import errors
from gateway.api.exceptions import openai_shape

pytestmark = pytest.mark.django_db

SECRET_WORDS = "SELECT secret FROM keys_apikey"


def answer_to(exception: Exception):
    return openai_shape(exception, {"view": APIView()})


@pytest.mark.parametrize(
    ("exception", "status", "code"),
    [
        (errors.model_not_found(), 404, "model_not_found"),
        (exceptions.NotAuthenticated(), 401, "invalid_api_key"),
        (exceptions.AuthenticationFailed(), 401, "invalid_api_key"),
        (exceptions.PermissionDenied(), 403, "scope_not_allowed"),
        (PermissionDenied(), 403, "scope_not_allowed"),
        (exceptions.NotFound(), 404, "not_found"),
        (Http404(), 404, "not_found"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.UnsupportedMediaType("text/xml"), 415, "unsupported_media_type"),
        (exceptions.ParseError(), 400, "invalid_request"),
        (SuspiciousOperation(), 400, "invalid_request"),
        (RequestDataTooBig(), 413, "request_too_large"),
        (OperationalError(SECRET_WORDS), 503, "service_unavailable"),
        (InterfaceError(SECRET_WORDS), 503, "service_unavailable"),
        (IntegrityError(SECRET_WORDS), 500, "internal_error"),
        (ValueError(SECRET_WORDS), 500, "internal_error"),
    ],
)
def test_every_exception_has_openais_shape(exception, status: int, code: str) -> None:
    response = answer_to(exception)
    assert response.status_code == status
    (error,) = response.data.values()
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == code
    assert SECRET_WORDS not in str(response.data)
    assert response["x-should-retry"] in {"true", "false"}


def test_a_complaint_names_its_field() -> None:
    error = answer_to(exceptions.ValidationError({"limits": {"rpm": ["Enter 1 or more."]}})).data
    assert error["error"]["param"] == "rpm"
    assert error["error"]["message"].startswith("Enter 1 or more. You were not charged.")


def test_a_wrong_method_says_which_are_right() -> None:
    assert answer_to(exceptions.MethodNotAllowed("PUT"))["allow"] == "OPTIONS"

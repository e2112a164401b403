import pytest
from django.test import Client


class Caller:
    """Calls the API with one key."""

    def __init__(self, secret: str | None) -> None:
        self._headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
        self._client = Client(raise_request_exception=False)

    def get(self, path: str, **headers: str):
        return self._client.get(path, headers={**self._headers, **headers})

    def call(self, method: str, path: str, **headers: str):
        return self._client.generic(method, path, headers={**self._headers, **headers})


@pytest.fixture
def caller(settings):
    settings.ROOT_URLCONF = "tests.gateway.api.urls"
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "whitenoise" not in name]
    return Caller

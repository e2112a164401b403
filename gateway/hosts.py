"""Pages answer to the names in `Host` that are configured; the API answers to any, like the relay.

A page's links and cookies depend on its name. An API call depends on its key alone, and comes by
whatever name a container or a proxy has for us.
"""

from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

API = "/v1/"


class PagesMiddleware(CommonMiddleware):
    """Django's own, which refuses a strange `Host`."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        return None if request.path.startswith(API) else super().process_request(request)

"""One call of one vendor: what went out, what came in, when."""

from typing import Any

from gateway.exchanges.masking import DOTS, mask_text
from gateway.relay.answer import AnswerRelay
from gateway.relay.capture import Capture
from gateway.relay.failures import Fault, without_secret
from gateway.relay.headers import Headers
from gateway.runtime.snapshot import RouteTo

PATH = "/chat/completions"
KEPT_HEADERS = (b"content-type", b"content-encoding")
MILLISECONDS = 1_000
MESSAGE_CHARS = 500


class Attempt:
    """Times are the event loop's seconds; 0.0 is "not yet"."""

    def __init__(
        self, route: RouteTo, relay: AnswerRelay, body: bytes, now_s: float, *, asks_usage: bool
    ) -> None:
        self.route = route
        self.relay = relay
        self.body = body
        self.asks_usage = asks_usage
        self.request_headers = route.vendor.request_headers
        self.status = 0
        self.headers: Headers = []
        self.capture = Capture()
        self.fault: Fault | None = None
        self.started_s = now_s
        self.head_s = 0.0
        self.first_byte_s = 0.0
        self.last_received_s = now_s
        self.ended_s = 0.0

    def answered(self, status: int, headers: Headers, now_s: float) -> None:
        self.status = status
        self.headers = headers
        self.head_s = self.last_received_s = now_s

    def received(self, data: bytes, now_s: float) -> None:
        if not self.first_byte_s:
            self.first_byte_s = now_s
        self.last_received_s = now_s
        self.capture.add(data)

    def summary(self, number: int, origin_s: float) -> dict[str, Any]:
        """As kept on the exchange: for the tenant's page, and for staff who pay the vendor."""
        failure = self.relay.failure or self.relay.mid_stream_failure
        said = {
            "n": number,
            "vendor": self.route.vendor.name,
            "vendor_model": self.route.vendor_model,
            "status": self.status or None,
            "started_ms": _ms(self.started_s, origin_s),
            "first_byte_ms": _ms(self.first_byte_s, origin_s),
            "ended_ms": _ms(self.ended_s, origin_s),
            "error": (failure.error.code if failure else None)
            or (self.fault.value if self.fault else None),
            "vendor_message": self._vendors_words(failure.vendor_message) if failure else None,
            "usage": self.relay.raw_usage if failure else None,
        }
        return {name: value for name, value in said.items() if value is not None and value != ""}

    def _vendors_words(self, message: str) -> str:
        message = without_secret(message, self.route.vendor.credential, DOTS)
        return mask_text(message[:MESSAGE_CHARS])

    def kept_head(self) -> dict[str, Any]:
        """What the core needs to read the captured bytes again."""
        kept = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in self.headers
            if name in KEPT_HEADERS
        ]
        return {"status": self.status, "headers": kept}


def _ms(moment_s: float, origin_s: float) -> int | None:
    return round((moment_s - origin_s) * MILLISECONDS) if moment_s else None

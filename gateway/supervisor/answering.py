"""What uvicorn's answers lack: HTTP/1.0, which nginx speaks to its upstreams unless told not to.

Such a client knows no chunks (RFC 9112, 6.1). An answer without a length is sent to it as it is,
and ends with its connection; uvicorn would send it chunks.
"""

from typing import Any

from uvicorn.protocols.http import httptools_impl

LENGTH = b"content-length"


class Cycle(httptools_impl.RequestResponseCycle):
    """One request and its answer, for either version."""

    _is_open_ended = False

    async def send(self, message: Any) -> None:
        if self._goes_on(message):
            body = message["body"]
            if body:
                self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
            return
        if self.scope["http_version"] == "1.0":
            self._leave_out_chunks(message)
        await super().send(message)

    def _goes_on(self, message: Any) -> bool:
        """Whether it is one more chunk of a stream to a client that takes it."""
        return bool(
            message.get("more_body")
            and self.chunked_encoding
            and self.response_started
            and not self.flow.write_paused
            and not self.disconnected
            and self.scope["method"] != "HEAD"
        )

    def _leave_out_chunks(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            names = (name.lower() for name, _ in message.get("headers", ()))
            self._is_open_ended = LENGTH not in names
            if self._is_open_ended:
                self.chunked_encoding = False
        elif self._is_open_ended:
            self.expected_content_length = len(message.get("body", b""))


def install() -> None:
    """Make uvicorn answer so in this process; it has no setting for it."""
    httptools_impl.RequestResponseCycle = Cycle  # type: ignore[misc]

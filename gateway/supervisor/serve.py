"""One gateway process on a listening socket that the supervisor has made.

``python -m gateway.supervisor.serve FD APPLICATION``. Not uvicorn's own ``--fd``, which takes the
socket for a Unix one and so leaves TCP_NODELAY off: every small piece of a stream would wait.
"""

import re
import socket
import sys

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.supervisor import answering

READY_LINE = "gateway process is ready"
GRACEFUL_SECONDS = 4
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75


MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers; the bound is kept after each read, which may be as long."""
_OFFER = re.compile(rb"(?<=\n)upgrade(?=[ \t]*:)", re.IGNORECASE)
_NO_OFFER = b"x-offer"  # as long as the name it stands for


class Protocol(HttpToolsProtocol):
    """uvicorn's, which bounds no head, and reads no body after an offer of another protocol.

    Java's HTTP client and `curl --http2` offer HTTP/2 with every request without TLS. It may be
    declined, so the offer's header gets a name that says nothing.
    """

    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        if self.cycle is not None and self.cycle.more_body:
            super().data_received(data)
            return
        self._head_bytes += len(data)
        if b"pgrade" in data or b"PGRADE" in data:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(_NO_OFFER, head) + end + body
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            message = f"The request line and headers are larger than {MAX_HEAD_BYTES} bytes."
            self.logger.warning(message)
            self.send_400_response(message)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        super().on_headers_complete()


class AnnouncingServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(READY_LINE + "\n")
            sys.stdout.flush()


def main(arguments: list[str]) -> None:
    descriptor, application = arguments
    answering.install()
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,  # Django's LOGGING has the say
        proxy_headers=False,  # only addresses that the settings trust may speak for others
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    AnnouncingServer(config).run(sockets=[socket.socket(fileno=int(descriptor))])


if __name__ == "__main__":
    main(sys.argv[1:])

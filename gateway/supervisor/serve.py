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


_OFFER = re.compile(rb"(?<=\n)upgrade(?=[ \t]*:)", re.IGNORECASE)
_NO_OFFER = b"x-offer"  # as long as the name it stands for


class Protocol(HttpToolsProtocol):
    """uvicorn's, which reads no body after an offer to speak another protocol.

    Java's HTTP client and `curl --http2` offer HTTP/2 with every request without TLS. It is theirs
    to be declined, so the offer's header gets a name that says nothing.
    """

    def data_received(self, data: bytes) -> None:
        is_head = self.cycle is None or not self.cycle.more_body
        if is_head and (b"pgrade" in data or b"PGRADE" in data):
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(_NO_OFFER, head) + end + body
        super().data_received(data)


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

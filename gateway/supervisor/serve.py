"""One gateway process on a listening socket that the supervisor has made.

``python -m gateway.supervisor.serve FD APPLICATION``. Not uvicorn's own ``--fd``, which takes the
socket for a Unix one and so leaves TCP_NODELAY off: every small piece of a stream would wait.
"""

import socket
import sys

import uvicorn

from gateway.supervisor import answering

READY_LINE = "gateway process is ready"
GRACEFUL_SECONDS = 4
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75


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
        http="httptools",
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

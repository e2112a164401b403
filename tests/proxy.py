"""A loopback TCP proxy that a test can cut, freeze and mend: PostgreSQL or Redis going away."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

PIECE_BYTES = 64 * 1024
RESET = struct.pack("ii", 1, 0)


class Proxy:
    """`with Proxy(host, port) as proxy`: connections to `proxy.port` reach the target."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flows = threading.Event()
        self._answers = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._flows.set()
        self._answers.set()
        self.mend()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flows.set()
        self._answers.set()
        self.cut()

    def mend(self) -> None:
        """Take connections again, on the port of the first time."""
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Reset every connection and refuse new ones, as a killed server's host does."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.drop()

    def drop(self) -> None:
        """Reset every connection; new ones are welcome."""
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _reset(one)

    def freeze(self) -> None:
        """Keep connections open and let nothing through, as a stopped host does."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def lose_answers(self) -> None:
        """Let questions through and no answers."""
        self._answers.clear()

    def find_answers(self) -> None:
        self._answers.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        asking = threading.Thread(
            target=self._pump, args=(client, server, self._flows), daemon=True
        )
        asking.start()
        self._pump(server, client, self._answers)
        asking.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._flows.wait()
                gate.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def _reset(one: socket.socket) -> None:
    """Its carrier closes it then."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        one.shutdown(socket.SHUT_RDWR)

"""Records as a gateway puts them on the pipe to its scribe."""

import marshal
from typing import Any
from uuid import UUID

from billing.ids import new_exchange_id
from gateway.exchanges.scribe import LENGTH

REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def a_record(exchange_id: UUID | None = None, body: bytes = REQUEST) -> tuple[Any, ...]:
    """A request that was refused before any vendor was asked."""
    return (
        (exchange_id or new_exchange_id()).bytes,
        1,
        "content",
        ("/v1/chat/completions", "1.1", "127.0.0.1", [(b"host", b"localhost")], body),
        [],
        None,
        None,
        b'{"error":{}}',
    )


def framed(record: Any) -> bytes:
    data = marshal.dumps(record)
    return LENGTH.pack(len(data)) + data


def id_of(record: tuple[Any, ...]) -> UUID:
    return UUID(bytes=record[0])


def stored(records: list[tuple[Any, ...]]) -> int:
    """How many of these have a transcript."""
    from gateway.models import Transcript

    return Transcript.objects.filter(exchange_id__in=[id_of(record) for record in records]).count()

"""A vendor's answer, read again from what was kept of it."""

from collections.abc import Iterable

from gateway.relay.answer import AnswerRelay


def reread(
    vendor_model: str, status: int, headers: Iterable[tuple[str, str]], answer: bytes
) -> AnswerRelay:
    """The relay's core at the end of that answer: its completion, its usage, how it finished."""
    relay = AnswerRelay(
        client_streams=False,
        client_wants_usage=True,
        completion_id="",
        model="",
        vendor_model=vendor_model,
    )
    relay.receive_head(
        status,
        [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
    )
    relay.receive(answer)
    relay.receive_end()
    return relay

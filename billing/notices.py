"""What the operator's people should look at, once for each kind and exchange."""

from typing import Final
from uuid import UUID

from billing.models import NoticeKind, StaffNotice

WORDS: Final = {
    NoticeKind.ESTIMATE_FAILS: "its tokens could not be counted so far; the hold stays meanwhile",
    NoticeKind.ESTIMATE_GIVEN_UP: "its tokens could not be counted; nothing was charged for it",
    NoticeKind.LATE_SETTLEMENT: "its gateway told of it after it was settled in its name",
    NoticeKind.NEVER_SETTLED: "a living gateway left it open beyond every time-out; taken over",
}


def notify_staff(kind: NoticeKind, exchange_id: UUID, tenant_id: int, more: str = "") -> None:
    """In the transaction of what it tells about. Told before, nothing is written."""
    words = f"{WORDS[kind]}; {more}" if more else WORDS[kind]
    StaffNotice.objects.get_or_create(
        kind=kind, exchange_id=exchange_id, defaults={"tenant_id": tenant_id, "words": words}
    )

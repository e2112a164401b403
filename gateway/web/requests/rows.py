"""An exchange as one line: of the list, and of the CSV."""

from dataclasses import dataclass
from datetime import datetime

from billing.ids import REQUEST_PREFIX
from billing.models import UsageSource
from billing.usage import COMPLETION_ESTIMATED, PROMPT_ESTIMATED, Usage
from gateway.exchanges.selectors import FAILED, OPEN, REFUSED, ExchangeRow, KeyView
from gateway.templatetags.farthing import ELLIPSIS

STREAMING = "streaming"
MS_PER_SECOND = 1_000
SHORT_ID_CHARS = 8
FIRST_ERROR_STATUS = 400
BROKE_OFF = "Broke off"  # after the client had its 200


@dataclass(frozen=True, slots=True)
class RequestLine:
    """`usage` is None where none is known; `charge_nanos` is None until it is settled."""

    row: ExchangeRow

    @property
    def public_id(self) -> str:
        return self.row.public_id

    @property
    def short_id(self) -> str:
        """Its end, which tells it apart: what it begins with is its time."""
        return f"{REQUEST_PREFIX}{ELLIPSIS}{self.public_id[-SHORT_ID_CHARS:]}"

    @property
    def at(self) -> datetime:
        return self.row.exchange.created_at

    @property
    def model(self) -> str:
        return self.row.exchange.model

    @property
    def key(self) -> KeyView | None:
        return self.row.key

    @property
    def state(self) -> str:
        """A state of the design system."""
        status = self.row.status
        return STREAMING if status == OPEN and self.row.exchange.is_stream else status

    @property
    def state_words(self) -> str:
        """`Refused 402`; empty where the state's own word says it all."""
        word = {FAILED: "Failed", REFUSED: "Refused"}.get(self.row.status)
        if word is None:
            return ""
        status_code = self.row.exchange.status_code or 0
        return f"{word} {status_code}" if status_code >= FIRST_ERROR_STATUS else BROKE_OFF

    @property
    def first_token_ms(self) -> int | None:
        """None where the first byte was an error's."""
        is_error = self.row.status == FAILED and self.state_words != BROKE_OFF
        return None if is_error else self.row.exchange.first_byte_ms

    @property
    def mode(self) -> str:
        return "stream" if self.row.exchange.is_stream else "whole"

    @property
    def seconds(self) -> str | None:
        duration_ms = self.row.exchange.duration_ms
        return None if duration_ms is None else f"{duration_ms / MS_PER_SECOND:,.2f}"

    @property
    def usage(self) -> Usage | None:
        charge = self.row.charge
        is_known = charge is not None and charge.usage_source != UsageSource.NONE
        return charge.usage if charge is not None and is_known else None

    @property
    def is_prompt_estimated(self) -> bool:
        return self._is_estimated(PROMPT_ESTIMATED)

    @property
    def is_completion_estimated(self) -> bool:
        return self._is_estimated(COMPLETION_ESTIMATED)

    @property
    def is_held(self) -> bool:
        return self.row.charge is None

    @property
    def charge_nanos(self) -> int | None:
        return None if self.row.charge is None else self.row.charge.charge_nanos

    def _is_estimated(self, flag: str) -> bool:
        charge = self.row.charge
        if charge is None:
            return False
        return charge.usage_source == UsageSource.ESTIMATE or flag in charge.flags

"""What the ledger should do, said a second time: plain Python, one object at a time, no SQL."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Purse:
    """A wallet, or a credit with an expiry."""

    posted: int = 0
    held: int = 0
    credit_limit: int = 0
    expires_at: datetime | None = None

    @property
    def room(self) -> int:
        return self.posted + self.credit_limit - self.held

    def is_live(self, now: datetime) -> bool:
        return self.expires_at is None or self.expires_at > now


@dataclass
class Cap:
    """A hard limit: what each day, or all time, has posted and holds."""

    period: str
    amount: int
    posted: dict[object, int] = field(default_factory=dict)
    held: dict[object, int] = field(default_factory=dict)

    def slot(self, opened_at: datetime) -> object:
        return None if self.period == "total" else opened_at.date()

    def room(self, slot: object) -> int:
        return self.amount - self.posted.get(slot, 0) - self.held.get(slot, 0)

    def move(self, slot: object, held: int, posted: int = 0) -> None:
        self.held[slot] = self.held.get(slot, 0) + held
        self.posted[slot] = self.posted.get(slot, 0) + posted


@dataclass
class Opened:
    """An exchange: what it holds on which purse, in the order in which it spends."""

    opened_at: datetime
    parts: dict[int, int] = field(default_factory=dict)
    caps: list[tuple[Cap, object]] = field(default_factory=list)
    charge: int | None = None

    @property
    def held(self) -> int:
        return sum(self.parts.values())


@dataclass
class Books:
    wallet: Purse = field(default_factory=Purse)
    credits: list[Purse] = field(default_factory=list)
    caps: list[Cap] = field(default_factory=list)
    exchanges: list[Opened] = field(default_factory=list)
    given: int = 0  # all that came in, less what went out other than by charges
    earned: int = 0  # all that was charged

    def purse(self, number: int) -> Purse:
        return self.wallet if number < 0 else self.credits[number]

    def sources(self, now: datetime) -> list[int]:
        live = [n for n, credit in enumerate(self.credits) if credit.is_live(now)]
        return [*sorted(live, key=lambda n: (self.credits[n].expires_at, n)), -1]

    def open(self, nanos: int, now: datetime) -> Opened | None:
        exchange = Opened(now, caps=[(cap, cap.slot(now)) for cap in self.caps])
        if not self._reserve(exchange, nanos, now):
            return None
        self.exchanges.append(exchange)
        return exchange

    def extend(self, exchange: Opened, nanos: int, now: datetime) -> bool:
        more = nanos - exchange.held
        return more <= 0 or self._reserve(exchange, more, now)

    def _reserve(self, exchange: Opened, nanos: int, now: datetime) -> bool:
        active = [(cap, slot) for cap, slot in exchange.caps if cap in self.caps]
        if any(cap.room(slot) < nanos for cap, slot in active):
            return False
        sources = [n for n in self.sources(now) if self.purse(n).room > 0]
        if sum(self.purse(n).room for n in sources) < nanos:
            return False
        rest = nanos
        for number in sources:
            part = min(rest, self.purse(number).room)
            self.purse(number).held += part
            rest -= part
            if part:
                exchange.parts[number] = exchange.parts.get(number, 0) + part
        for cap, slot in exchange.caps:
            cap.move(slot, held=nanos)
        return True

    def settle(self, exchange: Opened, cost: int, now: datetime) -> int:
        held, rest = exchange.held, cost
        order = sorted(exchange.parts, key=lambda n: (n < 0, self.purse(n).expires_at or now, n))
        for number in order:
            purse, part = self.purse(number), exchange.parts[number]
            paid = min(rest, part)
            purse.held -= part
            purse.posted -= paid
            rest -= paid
        # Room that this very settlement gave back is not spent twice: rest > 0 means none was.
        for number in self.sources(now) if rest else ():
            purse = self.purse(number)
            paid = min(rest, max(purse.room, 0))
            purse.posted -= paid
            rest -= paid
        exchange.charge = cost - rest
        self.earned += exchange.charge
        for cap, slot in exchange.caps:
            cap.move(slot, held=-held, posted=exchange.charge)
        return exchange.charge

    def expire(self, now: datetime) -> None:
        for credit in self.credits:
            if not credit.is_live(now):
                self.given -= credit.posted - credit.held
                credit.posted = credit.held

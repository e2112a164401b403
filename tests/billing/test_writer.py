"""Group commit against a real PostgreSQL: rows are committed, so each test has its own tenants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from billing import writer
from billing.audit import audit
from billing.errors import LedgerUnavailable, QueueFull
from billing.ledger import hold_answer, settle_answer
from billing.models import Exchange, Transfer
from billing.writer import HOLD, SETTLE, GroupCommit
from tests.billing.acts import a_hold, a_settlement, wallet_of
from tests.proxy import Proxy

pytestmark = pytest.mark.usefixtures("committed")

NO_PAUSE = (0.0, 0.0)


async def connect() -> psycopg.AsyncConnection[Any]:
    name = connections["default"].settings_dict["NAME"]
    url = psycopg.conninfo.make_conninfo(settings.DATABASE_URL, dbname=name)
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


def holds_writer(connecting=connect, pauses=NO_PAUSE) -> GroupCommit:
    return GroupCommit("holds", HOLD, connecting, pauses)


def run(work) -> Any:
    return asyncio.run(work)


async def together(group: GroupCommit, items: list[dict]) -> list[Any]:
    """Queue all before the writer starts, so that they make one batch."""
    answers = [group.submit(item) for item in items]
    group.start()
    try:
        return await asyncio.gather(*answers, return_exceptions=True)
    finally:
        await group.close()


def test_a_batch_is_one_statement_with_an_answer_for_each_item(world) -> None:
    tenant = world.tenant(balance="1")
    group = holds_writer()

    rows = run(together(group, [a_hold(tenant, 300_000_000).item() for _ in range(5)]))

    assert [hold_answer(row).is_held for row in rows] == [True, True, True, False, False]
    assert (group.batches, group.items) == (1, 5)
    assert wallet_of(tenant).held_nanos == 900_000_000


def test_an_item_that_breaks_a_constraint_fails_alone(world) -> None:
    tenant = world.tenant(balance="1")
    good, bad = a_hold(tenant, 1), a_hold(tenant, -5)

    rows = run(together(holds_writer(), [good.item(), bad.item(), a_hold(tenant, 2).item()]))

    assert hold_answer(rows[0]).is_held
    assert isinstance(rows[1], psycopg.errors.CheckViolation)
    assert hold_answer(rows[2]).is_held
    assert wallet_of(tenant).held_nanos == 3
    assert not Exchange.objects.filter(id=bad.exchange_id).exists()


def test_an_item_that_is_no_json_is_refused_before_it_is_queued(world) -> None:
    tenant = world.tenant(balance="1")

    async def submit() -> int:
        group = holds_writer()
        with pytest.raises(TypeError):
            group.submit({**a_hold(tenant, 1).item(), "model": object()})
        return group.waiting

    assert run(submit()) == 0


def test_a_text_that_postgresql_would_refuse_is_mended(world) -> None:
    tenant = world.tenant(balance="1")
    holds = [a_hold(tenant, 1, model=text) for text in ("a\x00b", "\ud83d")]
    rows = run(together(holds_writer(), [hold.item() for hold in holds]))
    assert all(hold_answer(row).is_held for row in rows)
    found = Exchange.objects.in_bulk([hold.exchange_id for hold in holds])
    assert [found[hold.exchange_id].model for hold in holds] == ["a\ufffdb", "\ufffd"]


def test_a_value_that_postgresql_refuses_harms_no_neighbour(world) -> None:
    tenant = world.tenant(balance="1")
    items = [a_hold(tenant, 1, model=f"m{n}").item() for n in range(10)]
    items[3]["created_at"] = "never"

    rows = run(together(holds_writer(), items))

    assert isinstance(rows[3], psycopg.DataError)
    assert [hold_answer(row).is_held for at, row in enumerate(rows) if at != 3] == [True] * 9


def test_a_connection_lost_in_mid_batch_is_opened_again_and_nothing_is_applied_twice(world) -> None:
    tenant = world.tenant(balance="1")
    opened: list[psycopg.AsyncConnection[Any]] = []

    class CommitsThenBreaks:
        """A connection that loses the answer to what it has committed."""

        def __init__(self, real) -> None:
            self.real, self.closed = real, False

        async def execute(self, *arguments, **options):
            await self.real.execute(*arguments, **options)
            raise psycopg.OperationalError("connection lost")

        async def close(self) -> None:
            self.closed = True
            await self.real.close()

    async def flaky():
        connection = await connect()
        opened.append(connection)
        return CommitsThenBreaks(connection) if len(opened) == 1 else connection

    hold = a_hold(tenant, 400_000_000)
    rows = run(together(holds_writer(flaky), [hold.item()]))

    assert len(opened) == 2
    assert hold_answer(rows[0]).is_held
    assert wallet_of(tenant).held_nanos == 400_000_000
    assert Transfer.objects.filter(link=hold.exchange_id).count() == 1


def test_without_postgresql_every_caller_is_told(world) -> None:
    tenant = world.tenant(balance="1")

    async def nowhere():
        raise psycopg.OperationalError("refused")

    answers = run(together(holds_writer(nowhere), [a_hold(tenant, 1).item() for _ in range(3)]))

    assert [type(answer) for answer in answers] == [LedgerUnavailable] * 3
    assert wallet_of(tenant).held_nanos == 0


def test_a_full_queue_refuses_at_once(world, monkeypatch) -> None:
    tenant = world.tenant(balance="1")
    monkeypatch.setattr(writer, "QUEUE_ITEMS", 2)

    async def fill() -> None:
        group = holds_writer()
        group.submit(a_hold(tenant, 1).item())
        group.submit(a_hold(tenant, 1).item())
        with pytest.raises(QueueFull):
            group.submit(a_hold(tenant, 1).item())
        group.start()
        await group.close()

    run(fill())
    assert wallet_of(tenant).held_nanos == 2


def test_closing_writes_what_is_queued_and_refuses_what_comes_after(world) -> None:
    tenant = world.tenant(balance="1")

    async def stop() -> None:
        group = holds_writer()
        answers = [group.submit(a_hold(tenant, 1).item()) for _ in range(150)]
        group.start()
        await group.close()
        assert all(answer.done() for answer in answers)
        with pytest.raises(QueueFull):
            group.submit(a_hold(tenant, 1).item())

    run(stop())
    assert wallet_of(tenant).held_nanos == 150


def test_a_tenant_with_a_long_queue_delays_itself_only(world) -> None:
    busy, calm = world.tenant("Busy"), world.tenant("Calm")

    async def order() -> list[int]:
        done: list[int] = []
        group = holds_writer()
        items = [a_hold(busy, 1) for _ in range(200)] + [a_hold(calm, 1)]
        for hold in items:
            answer = group.submit(hold.item())
            answer.add_done_callback(lambda _answer, tenant=hold.tenant_id: done.append(tenant))
        group.start()
        await group.close()
        return done

    assert run(order()).index(calm.pk) < writer.BATCH_ITEMS


# --- wallets that somebody keeps locked -------------------------------------------------------


async def impatient() -> psycopg.AsyncConnection[Any]:
    connection = await connect()
    await connection.execute("SET lock_timeout = '100ms'")
    return connection


@asynccontextmanager
async def locked(*tenants) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await connect() as other, other.transaction():
        await other.execute(
            "SELECT FROM billing_account WHERE tenant_id = ANY (%s) FOR UPDATE",
            ([tenant.pk for tenant in tenants],),
        )
        yield other


def test_a_locked_wallet_delays_its_neighbours_once_and_is_served_when_it_is_free(world) -> None:
    stuck, calm = world.tenant("Stuck"), world.tenant("Calm")

    async def work() -> list[Any]:
        group = holds_writer(impatient)
        async with locked(stuck):
            late = [group.submit(a_hold(stuck, 1).item()) for _ in range(3)]
            answers = [group.submit(a_hold(calm, 1).item()) for _ in range(100)]
            group.start()
            async with asyncio.timeout(0.8):  # the lock's time once, and not for each batch
                rows = await asyncio.gather(*answers)
                late.append(group.submit(a_hold(stuck, 1).item()))
                rows.append(await group.submit(a_hold(calm, 1).item()))
            assert not any(answer.done() for answer in late)
        rows += await asyncio.gather(*late)
        rows.append(await group.submit(a_hold(stuck, 1).item()))
        await group.close()
        return rows

    assert all(hold_answer(row).is_held for row in run(work()))
    assert (wallet_of(calm).held_nanos, wallet_of(stuck).held_nanos) == (101, 5)


def test_a_wallet_that_stays_locked_fails_its_own_items_in_time(world, monkeypatch) -> None:
    monkeypatch.setattr(writer, "ASIDE_S", 0.3)
    stuck = [world.tenant("One"), world.tenant("Two")]

    async def work() -> list[Any]:
        group = holds_writer(impatient)
        async with locked(*stuck):
            answers = [group.submit(a_hold(tenant, 1).item()) for tenant in stuck]
            group.start()
            failed = await asyncio.gather(*answers, return_exceptions=True)
        await group.close()
        return failed

    assert [type(error) for error in run(work())] == [psycopg.errors.LockNotAvailable] * 2
    assert [wallet_of(tenant).held_nanos for tenant in stuck] == [0, 0]


def test_closing_waits_for_what_was_set_aside(world) -> None:
    stuck = world.tenant("Stuck")

    async def work() -> Any:
        group = holds_writer(impatient)
        async with locked(stuck):
            answer = group.submit(a_hold(stuck, 1).item())
            group.start()
            closing = asyncio.create_task(group.close())
            await asyncio.wait({answer}, timeout=0.3)
        await closing
        return answer.result()

    assert hold_answer(run(work())).is_held


# --- a server that is there and silent --------------------------------------------------------


def test_an_answer_that_does_not_come_is_waited_for_so_long_and_written_once(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 400_000_000)
    parts = psycopg.conninfo.conninfo_to_dict(settings.DATABASE_URL)

    async def work(proxy: Proxy) -> Any:
        async def through() -> psycopg.AsyncConnection[Any]:
            url = psycopg.conninfo.make_conninfo(
                settings.DATABASE_URL,
                dbname=connections["default"].settings_dict["NAME"],
                port=proxy.port,
            )
            return await psycopg.AsyncConnection.connect(url, autocommit=True)

        group = GroupCommit("holds", HOLD, through, NO_PAUSE, answer_s=0.3)
        group.start()
        await group.submit(a_hold(tenant, 1).item())
        for silence in (proxy.lose_answers, proxy.freeze):
            silence()
            async with asyncio.timeout(1.5):
                with pytest.raises(LedgerUnavailable):
                    await group.submit(hold.item())
        proxy.thaw()
        proxy.find_answers()
        row = await group.submit(hold.item())
        await group.close()
        return row

    with Proxy(str(parts["host"]), int(parts["port"])) as proxy:
        assert hold_answer(run(work(proxy))).is_held
    assert wallet_of(tenant).held_nanos == 400_000_001
    assert Transfer.objects.filter(link=hold.exchange_id).count() == 1


acts = st.lists(
    st.tuples(
        st.integers(0, 1),  # which of two tenants
        st.integers(0, 6),  # hold, in tenths
        st.none() | st.integers(0, 8),  # cost, in tenths; None leaves it open
    ),
    min_size=1,
    max_size=12,
)


@given(acts)
@profile(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_batched_and_single_execution_give_the_same_ledger(world, script) -> None:
    def outcome(batched: bool) -> list[Any]:
        tenants = [world.tenant("One", "1"), world.tenant("Two", "1")]
        holds = [a_hold(tenants[who], tenths * 100_000_000) for who, tenths, _ in script]
        held = run(execute(holds_writer(), [hold.item() for hold in holds], batched))
        costs = [
            a_settlement(hold, cost * 100_000_000).item()
            for hold, (_, _, cost), row in zip(holds, script, held, strict=True)
            if cost is not None and hold_answer(row).is_held
        ]
        settled = run(execute(GroupCommit("settle", SETTLE, connect, NO_PAUSE), costs, batched))
        wallets = [wallet_of(tenant) for tenant in tenants]
        return [
            [hold_answer(row).is_held for row in held],
            [settle_answer(row) for row in settled],
            [(account.posted_nanos, account.held_nanos) for account in wallets],
        ]

    async def execute(group: GroupCommit, items: list[dict], batched: bool) -> list[Any]:
        if batched:
            return await together(group, items)
        group.start()
        rows = [await group.submit(item) for item in items]
        await group.close()
        return rows

    assert outcome(True) == outcome(False)
    assert audit().is_clean

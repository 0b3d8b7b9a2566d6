from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import ledgers
import pytest
from blockbuster import blockbuster_ctx
from faults import disk_full

from memoryd.adapters.ledger import Ledger
from memoryd.adapters.ledger_file import companion
from memoryd.adapters.ledger_rows import TransactionLostError
from memoryd.adapters.ledger_thread import LedgerThread
from memoryd.errors import LedgerError, MemorydError, StorageError, UnwrittenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memoryd import ports

T = TypeVar("T")
pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite3"


class Counting(Ledger):
    """A ledger that counts its transactions."""

    transactions = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.transactions += 1
        with super().transaction():
            yield


@pytest.fixture
def ledger(path: Path) -> Counting:
    opened = Counting.open(path).ledger
    assert isinstance(opened, Counting)
    return opened


class Gate:
    """Holds the ledger's thread inside of a work until it is opened."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self._opened = threading.Event()

    def work(self, _ledger: ports.Ledger) -> None:
        anyio.from_thread.run_sync(self.entered.set, token=self.token)
        assert self._opened.wait(30)

    async def hold(self, thread: LedgerThread, tasks: anyio.abc.TaskGroup) -> None:
        self.token = anyio.lowlevel.current_token()
        tasks.start_soon(thread.commit, self.work)
        await self.entered.wait()

    def open(self) -> None:
        self._opened.set()


class Callers:
    """Works of many tasks, and what each of them got."""

    def __init__(self, thread: ports.LedgerThread) -> None:
        self.thread = thread
        self.got: dict[str, object] = {}

    async def commit(self, name: str, work: Callable[[ports.Ledger], T]) -> None:
        try:
            self.got[name] = await self.thread.commit(work)
        except (MemorydError, ZeroDivisionError) as error:
            self.got[name] = error


def owe(session: str) -> Callable[[ports.Ledger], None]:
    return lambda ledger: ledger.put_owed(ledgers.owed(session))


def fail(ledger: ports.Ledger) -> None:
    ledger.put_owed(ledgers.owed("failed"))
    raise ZeroDivisionError


def kept(path: Path) -> set[str]:
    with Ledger.open(path).ledger as ledger:
        return {owed.session for owed in ledger.owed()}


async def queued(count: int) -> None:
    """Let `count` tasks that were started reach their wait."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def test_a_work_is_on_disk_when_its_result_comes(
    ledger: Counting, path: Path, tmp_path: Path
) -> None:
    async with LedgerThread(ledger) as thread:
        assert await thread.commit(lambda inner: inner.first_seen("e", 1.0))
        await thread.commit(owe("s1"))
        copy = ledgers.killed(path, tmp_path / "copy")
    assert kept(copy) == {"s1"}
    assert kept(path) == {"s1"}


async def test_works_that_wait_together_share_one_commit(ledger: Counting, path: Path) -> None:
    gate = Gate()
    async with LedgerThread(ledger) as thread, anyio.create_task_group() as tasks:
        await gate.hold(thread, tasks)
        for number in range(100):
            tasks.start_soon(thread.commit, owe(str(number)))
        await queued(3)
        gate.open()
    assert ledger.transactions == 2
    assert kept(path) == {str(number) for number in range(100)}


async def test_they_run_in_the_order_in_which_they_came(ledger: Counting) -> None:
    gate, order = Gate(), list[int]()
    async with LedgerThread(ledger) as thread, anyio.create_task_group() as tasks:
        await gate.hold(thread, tasks)

        async def one(number: int) -> None:
            await thread.commit(lambda _: order.append(number))

        for number in range(20):
            tasks.start_soon(one, number)
            await queued(2)
        gate.open()
    assert order == list(range(20))


async def test_one_that_raises_does_not_take_the_others_with_it(
    ledger: Counting, path: Path
) -> None:
    gate = Gate()
    async with LedgerThread(ledger) as thread:
        callers = Callers(thread)
        async with anyio.create_task_group() as tasks:
            await gate.hold(thread, tasks)
            for name, work in (("a", owe("a")), ("bad", fail), ("b", owe("b"))):
                tasks.start_soon(callers.commit, name, work)
            await queued(3)
            gate.open()
    assert isinstance(callers.got.pop("bad"), ZeroDivisionError)
    assert callers.got == {"a": None, "b": None}
    assert ledger.transactions == 2
    assert kept(path) == {"a", "b"}


async def test_a_commit_that_fails_is_told_to_all_and_the_next_one_works(
    ledger: Counting, path: Path
) -> None:
    gate = Gate()
    async with LedgerThread(ledger) as thread:
        await thread.commit(owe("before"))
        callers = Callers(thread)
        async with anyio.create_task_group() as tasks:
            await gate.hold(thread, tasks)
            for name, work in (("a", owe("a")), ("bad", fail), ("b", owe("b"))):
                tasks.start_soon(callers.commit, name, work)
            await queued(3)
            with disk_full(companion(path, "-wal").stat().st_size), anyio.fail_after(30):
                gate.open()
                while len(callers.got) < 3:
                    await anyio.lowlevel.checkpoint()
        errors = [callers.got[name] for name in ("a", "b")]
        assert [type(error) for error in errors] == [UnwrittenError, UnwrittenError]
        assert str(errors[0]).startswith(f"cannot write {path}: ")
        assert errors[0] is not errors[1]
        assert isinstance(callers.got["bad"], ZeroDivisionError)
        await thread.commit(owe("after"))
    assert kept(path) == {"before", "after"}


async def test_a_transaction_that_is_lost_in_the_middle_is_told_to_all(
    ledger: Counting, path: Path
) -> None:
    def lose(_: ports.Ledger) -> None:
        ledger._connection.execute("ROLLBACK")
        raise StorageError(path, "write", "disk I/O error")

    gate = Gate()
    async with LedgerThread(ledger) as thread:
        callers = Callers(thread)
        async with anyio.create_task_group() as tasks:
            await gate.hold(thread, tasks)
            for name, work in (("a", owe("a")), ("bad", lose), ("b", owe("b"))):
                tasks.start_soon(callers.commit, name, work)
                await queued(2)
            gate.open()
    assert {type(error) for error in callers.got.values()} == {TransactionLostError}
    assert kept(path) == set()


async def test_a_caller_that_is_cancelled_breaks_nothing(ledger: Counting, path: Path) -> None:
    gate = Gate()
    async with LedgerThread(ledger) as thread, anyio.create_task_group() as tasks:
        await gate.hold(thread, tasks)
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(thread.commit, owe("a"))
            await queued(2)
            cancelled.cancel_scope.cancel()
        tasks.start_soon(thread.commit, owe("b"))
        await queued(2)
        gate.open()
    assert kept(path) == {"a", "b"}


async def test_the_end_finishes_what_waits(ledger: Counting, path: Path) -> None:
    gate = Gate()
    thread = LedgerThread(ledger)
    async with anyio.create_task_group() as tasks:
        async with thread:
            await gate.hold(thread, tasks)
            for number in range(5):
                tasks.start_soon(thread.commit, owe(str(number)))
            await queued(3)
            gate.open()
        assert not thread._thread.is_alive()
    assert kept(path) == set("01234")
    assert not companion(path, "-wal").exists()
    with pytest.raises(LedgerError, match="closed"):
        await thread.commit(owe("late"))


async def test_the_end_in_a_cancelled_scope_finishes_what_waits_too(
    ledger: Counting, path: Path
) -> None:
    gate = Gate()
    with anyio.CancelScope() as scope:
        async with LedgerThread(ledger) as thread, anyio.create_task_group() as tasks:
            await gate.hold(thread, tasks)
            tasks.start_soon(thread.commit, owe("a"))
            await queued(2)
            scope.cancel()
            gate.open()
    assert kept(path) == {"a"}


async def test_the_event_loop_is_never_blocked(ledger: Counting, path: Path) -> None:
    with blockbuster_ctx():
        async with LedgerThread(ledger) as thread, anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(thread.commit, owe(str(number)))
    assert len(kept(path)) == 10


async def test_a_long_log_is_moved_into_the_database_between_commits(
    ledger: Counting, path: Path
) -> None:
    async with LedgerThread(ledger) as thread:
        for number in range(30):
            data = bytes(range(256)) * 400 + str(number).encode()
            await thread.commit(partial(keep_raw, data=data))
        await thread.commit(lambda _: None)
        assert companion(path, "-wal").stat().st_size < 2.5 * 1024 * 1024


def keep_raw(ledger: ports.Ledger, *, data: bytes) -> None:
    assert isinstance(ledger, Ledger)
    ledger._execute("INSERT INTO versions VALUES (?, 0, ?)", (str(hash(data)), data))


def test_the_thread_ends_where_the_event_loop_ended_first(path: Path) -> None:
    started: list[LedgerThread] = []
    entered, opened = threading.Event(), threading.Event()

    def work(_: ports.Ledger) -> None:
        entered.set()
        assert opened.wait(30)

    async def main() -> None:
        thread = LedgerThread(Ledger.open(path).ledger)
        await thread.__aenter__()
        started.append(thread)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(thread.commit, work)
                await anyio.to_thread.run_sync(entered.wait)
                scope.cancel()

    anyio.run(main)
    opened.set()
    started[0]._thread.join(30)
    assert not started[0]._thread.is_alive()
    assert kept(path) == set()

"""The ledger's own thread, and commits that callers share.

Owns who runs when on the connection: works that wait at the same time run one after another in one
transaction, so that a hundred of them cost one sync of the disk. It must not know what a work does.
"""

from __future__ import annotations

import threading
from copy import copy
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from anyio import from_thread, lowlevel, to_thread

from memoryd.adapters.ledger_rows import TransactionLostError
from memoryd.errors import LedgerError, MemorydError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from memoryd import ports
    from memoryd.adapters.ledger import Ledger

T = TypeVar("T")


class _Job(Generic[T]):
    """One work, and what became of it."""

    def __init__(self, work: Callable[[ports.Ledger], T]) -> None:
        self.done = anyio.Event()
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self, ledger: Ledger) -> None:
        """Keeps what the work raises for its caller. Raises TransactionLostError."""
        try:
            self._result = [ledger.isolated(self._work)]
        except TransactionLostError:
            raise
        except BaseException as error:  # noqa: BLE001  not swallowed: it goes to the caller
            self._error = error

    def fail(self, error: MemorydError) -> None:
        """The transaction was not committed; an error of the work's own says more."""
        # One error raised in several tasks would gather all of their tracebacks.
        self._error = self._error or copy(error)

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class LedgerThread:
    """Implements `ports.LedgerThread`, as an async context manager that owns the ledger.

    Leaving it finishes what waits, closes the ledger and ends the thread. Nothing wakes the thread but
    a work.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._closed = False
        # A daemon that ends in some other way must not wait for works that nobody sends any more.
        self._thread = threading.Thread(target=self._serve, name="ledger", daemon=True)

    async def __aenter__(self) -> Self:
        self._token = lowlevel.current_token()
        await to_thread.run_sync(self._thread.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._waiting.put(None)
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._thread.join)

    async def commit(self, work: Callable[[ports.Ledger], T]) -> T:
        """`work`'s result, once its changes are on disk; what it raises, and then none of them are.

        `work` runs in the ledger's thread and must not wait for anything. A caller that is cancelled
        does not take its work back. Raises UnwrittenError where the commit failed: nothing was kept;
        LedgerError after the end.
        """
        if self._closed:
            raise LedgerError(self._ledger.path, "closed")
        job = _Job(work)
        self._waiting.put(job)
        await job.done.wait()
        return job.outcome()

    # ── in the thread ──────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        try:
            while jobs := self._together():
                self._commit(jobs)
                from_thread.run_sync(_tell, jobs, token=self._token)
                self._ledger.tidy()
        except anyio.RunFinishedError:
            return  # the event loop ended first: nobody is left to be told
        finally:
            self._ledger.close()

    def _together(self) -> list[_Job[Any]]:
        """All that waits, at least one; empty at the end."""
        jobs: list[_Job[Any]] = []
        job = self._waiting.get()
        while job is not None:
            jobs.append(job)
            try:
                job = self._waiting.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._waiting.put(None)
        return jobs

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        try:
            with self._ledger.transaction():
                for job in jobs:
                    job.run(self._ledger)
        except MemorydError as error:
            for job in jobs:
                job.fail(error)


def _tell(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.done.set()

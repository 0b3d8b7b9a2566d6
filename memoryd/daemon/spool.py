"""The spool: events that a shim could not deliver, handled later, in order, exactly once.

A shim writes the bytes that it would have sent, head and body, to `<state>/spool/<name>.tmp` (mode
0600), syncs it and renames it to `<name>`, where name = `<nanoseconds>-<event id>.http`. Owns what may
lie there and what becomes of a file. Knows no event: each goes through the dispatcher like any other
request, whose handlers drop an event id that they have seen.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from heapq import nsmallest
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from memoryd import paths
from memoryd.daemon import log
from memoryd.daemon.caller import Peer
from memoryd.daemon.dispatch import Stream
from memoryd.daemon.http import Exchange, Request
from memoryd.errors import RequestError, StorageError, UnsafePathError, UnwrittenError
from memoryd.protocol import BODY_LIMIT, HEADER_LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from memoryd.daemon.dispatch import Dispatcher
    from memoryd.daemon.http import Answer

NAME = re.compile(r"\d{16,20}-[0-9a-f]{8,64}\.http\Z")
"""Sorted by name is sorted by time: the shim pads the number."""

UNFINISHED = ".tmp"

FILE_LIMIT = HEADER_LIMIT + BODY_LIMIT
"""Bytes of a file."""

PASS_LIMIT = 256
"""Files that one call handles."""

ATTEMPTS = 3
"""Failures of the daemon on one event, after which those behind it get their turn."""

REFUSED = "refused"
"""Folder in the spool for files put aside."""

KEPT = 20
"""Files put aside that are kept: they hold text that nobody masked."""

TORN_AFTER = 600.0
"""Seconds after which an unfinished file is one whose shim has died."""


SETTLED = 2_000_000_000
"""Nanoseconds after which a folder's time stamp tells a later change apart from the last one."""


class Drained(msgspec.Struct, frozen=True):
    """What a call did: how many events were handled, which files were put aside, is there more."""

    handled: int = 0
    refused: tuple[str, ...] = ()
    more: bool = False


class Spool:
    """The folder of one state directory. One call of `drain` at a time."""

    def __init__(self, directory: Path, dispatcher: Dispatcher) -> None:
        self._directory = directory
        self._dispatcher = dispatcher
        self._failures: dict[str, int] = {}
        self._empty_since: int | None = None

    def waiting(self) -> int:
        """Events that wait. Blocks: call it in a thread."""
        try:
            with os.scandir(self._directory) as entries:
                return sum(1 for entry in entries if NAME.match(entry.name))
        except OSError:
            return 0

    async def drain(self) -> Drained:
        """Handle the oldest events, each after the one before it is done; the file is then deleted.

        A file that is no whole event of ours is put aside. An event that the daemon fails on stops
        the call, so that none overtakes it; the third time it is put aside. Raises UnsafePathError
        where others can write in the folder, StorageError where it can't be read or changed, and
        UnwrittenError where the ledger takes no event: that is no fault of this one, and it stays.
        """
        # The look that an idle daemon takes every minute wakes no thread.
        if self._stamp() == self._empty_since:
            return Drained()
        names = await to_thread.run_sync(self._oldest)
        handled, refused = 0, list[str]()
        for name in names[:PASS_LIMIT]:
            fault = await self._handle(name)
            if fault and self._failures.get(name, ATTEMPTS) < ATTEMPTS:
                return Drained(handled, tuple(refused), more=True)
            self._failures.pop(name, None)
            if fault:
                refused.append(name)
                log.warning("spooled event put aside", file=name, why=fault)
                await to_thread.run_sync(self._put_aside, name)
            else:
                handled += 1
                await to_thread.run_sync(self._delete, name)
        return Drained(handled, tuple(refused), more=len(names) > PASS_LIMIT)

    async def _handle(self, name: str) -> str:
        """Why it was not handled, or an empty string."""
        request = await to_thread.run_sync(self._request, name)
        if not isinstance(request, Request):
            return request
        if not self._dispatcher.takes_event(request):
            return "is no event"
        work = self._dispatcher.answer(request, Peer(os.geteuid()), None)
        answer = await self._dispatcher.contained(_or_unwritten(work), request)
        if isinstance(answer, UnwrittenError):
            raise answer
        assert not isinstance(answer, Stream)
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._failures[name] = self._failures.get(name, 0) + 1
        return f"answered with {answer.status}" if answer.status >= HTTPStatus.BAD_REQUEST else ""

    def _stamp(self) -> int:
        """When the folder was last changed; 0 where there is none."""
        try:
            return self._directory.stat().st_mtime_ns
        except OSError:
            return 0

    def _oldest(self) -> list[str]:
        """Names in order, one more than a call handles where there are more."""
        stamp = self._stamp()
        if not stamp:
            self._empty_since = 0
            return []
        if fault := paths.private_dir_fault(self._directory):
            raise UnsafePathError(self._directory, fault, hint=f"chmod 700 '{self._directory}'")
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for entry in entries]
        except OSError as error:
            raise StorageError(self._directory, "read", error.strerror or "failed") from error
        for name in names:
            if name.endswith(UNFINISHED):
                self._sweep(name)
        settled = time.time_ns() - stamp > SETTLED
        self._empty_since = stamp if settled and set(names) <= {REFUSED} else None
        return nsmallest(PASS_LIMIT + 1, filter(NAME.match, names))

    def _request(self, name: str) -> Request | str:
        """The event in a file, or why there is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._directory / name, flags)
        except OSError as error:
            return f"cannot be opened: {error.strerror}"
        try:
            if fault := _fault(os.fstat(descriptor)):
                return fault
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return _parsed(file.read(FILE_LIMIT))
        finally:
            os.close(descriptor)

    def _put_aside(self, name: str) -> None:
        folder = self._directory / REFUSED
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            (self._directory / name).replace(folder / name)
            for old in sorted(folder.iterdir(), reverse=True)[KEPT:]:
                with suppress(OSError):
                    old.unlink()
        except OSError as error:
            raise StorageError(folder / name, "write", error.strerror or "failed") from error

    def _delete(self, name: str) -> None:
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                self._directory / name, "delete", error.strerror or "failed"
            ) from error

    def _sweep(self, name: str) -> None:
        file = self._directory / name
        with suppress(OSError):
            if time.time() - file.lstat().st_mtime > TORN_AFTER:
                file.unlink()


async def _or_unwritten(work: Awaitable[Answer | Stream]) -> Answer | Stream | UnwrittenError:
    try:
        return await work
    except UnwrittenError as error:
        return error


def _fault(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid != os.geteuid():
        return f"belongs to uid {found.st_uid}"
    return "is too large" if found.st_size > FILE_LIMIT else ""


def _parsed(data: bytes) -> Request | str:
    exchange = Exchange()
    exchange.receive(data)
    try:
        request = exchange.next_request()
    except RequestError as error:
        return f"is no request: {error.code}"
    return "is no whole request" if request is None else request

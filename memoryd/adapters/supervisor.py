"""Child processes: started in a group of their own, ended in every way a run can end.

Owns the lifetime of each child: a deadline, a cancelled task, an exception, the end of the daemon, even
its kill, leave nothing behind of the child's whole group. Gives it a scrubbed environment with a marker,
by which our own hooks ignore what it does. Does not know what the children are for.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import anyio

from memoryd.adapters import guard
from memoryd.errors import MemorydError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from anyio.abc import Process

MARK = "MEMORYD_CHILD"
"""Set in every child's environment, and so in that of all that it starts."""

CANNOT_START = guard.CANNOT_START
"""Exit status where the program is not there or can't be run."""

POLITE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes of one line of a child's output."""

_KEPT = frozenset({"HOME", "PATH", "LANG", "LANGUAGE", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ"})
_KEPT_FRONTS = ("LC_", "XDG_")


class ChildError(MemorydError):
    """A child could not be started, or broke what was agreed with it; `program` is its name."""

    def __init__(self, program: str, fact: str) -> None:
        self.program = program
        self.fact = fact
        super().__init__(program, fact)

    def __str__(self) -> str:
        return f"{self.program}: {self.fact}"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: `argv[0]` is a path or a name on `env`'s PATH.

    `env` is the whole environment but the marker.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None = None

    def __repr__(self) -> str:
        return f"Command({self.program!r}, {len(self.argv) - 1} arguments)"

    @property
    def program(self) -> str:
        return Path(self.argv[0]).name


@dataclass(frozen=True, slots=True)
class Finished:
    """How a `run` ended: `code` is None where the deadline ended it; `output` at most the limit."""

    code: int | None
    output: bytes

    def __repr__(self) -> str:
        return f"Finished({self.code}, {len(self.output)} bytes)"


class Child:
    """A running child; what it writes to its standard error is dropped."""

    def __init__(self, command: Command, process: Process) -> None:
        self._program = command.program
        self._process = process

    async def send(self, data: bytes) -> None:
        """Write all of `data` to its standard input; raises ChildError where it has ended."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ChildError(self._program, "has ended") from error

    async def end_input(self) -> None:
        """Close its standard input."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()

    async def output(self) -> AsyncIterator[bytes]:
        """Its standard output in pieces, until it closes it."""
        assert self._process.stdout is not None
        async for piece in self._process.stdout:
            yield piece

    async def lines(self) -> AsyncIterator[bytes]:
        """Its standard output by lines, without their ends; a last line without one counts too.

        Raises ChildError where a line is longer than `LINE_LIMIT`.
        """
        held = bytearray()
        async for piece in self.output():
            *whole, rest = piece.split(b"\n")
            for line in whole:
                yield bytes(held + line)
                held.clear()
            held += rest
            if len(held) > LINE_LIMIT:
                raise ChildError(self._program, f"wrote a line of more than {LINE_LIMIT} bytes")
        if held:
            yield bytes(held)

    async def wait(self) -> int:
        """Its exit status, 128 + signal where one ended it."""
        return await self._process.wait()


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """What every child may have of the daemon's environment: home, path, language, XDG folders."""
    return {
        name: text for name, text in env.items() if name in _KEPT or name.startswith(_KEPT_FRONTS)
    }


@asynccontextmanager
async def started(command: Command) -> AsyncIterator[Child]:
    """The child while the block runs; after it, all of its group is killed and it is reaped.

    Raises ChildError where there is no such directory or no process can be made. A program that can't
    be started ends with status `CANNOT_START`.
    """
    ours, theirs = _lifeline()
    try:
        # Shielded: a start that is cancelled half-way would leave a process that nobody knows.
        with anyio.CancelScope(shield=True):
            process = await _open(command, theirs)
    except OSError as error:
        os.close(ours)
        raise ChildError(command.program, f"cannot start: {error.strerror}") from error
    finally:
        os.close(theirs)
    try:
        yield Child(command, process)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            os.close(ours)


async def run(command: Command, *, input: bytes = b"", deadline: float, limit: int) -> Finished:  # noqa: A002
    """Run it to its end, or for `deadline` seconds; at most `limit` bytes of output are kept."""
    kept = bytearray()
    code: int | None = None
    async with started(command) as child:
        with anyio.move_on_after(deadline):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, child, input)
                async for piece in child.output():
                    kept += piece[: limit - len(kept)]
            code = await child.wait()
    return Finished(code, bytes(kept))


async def _feed(child: Child, data: bytes) -> None:
    try:
        await child.send(data)
        await child.end_input()
    except ChildError:
        return  # it did not want all of it; its status says whether that is an error


def _lifeline() -> tuple[int, int]:
    """The daemon's end of a pipe, which dies with it, and the guard's."""
    theirs, ours = os.pipe()
    return ours, theirs


async def _open(command: Command, lifeline: int) -> Process:
    # Isolated and without `site`: 10 ms instead of 20, and nothing of the person's Python set-up.
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(lifeline), *command.argv]
    return await anyio.open_process(
        guarded,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=command.cwd,
        env={**command.env, MARK: "1"},
        start_new_session=True,
        pass_fds=[lifeline],
    )


async def _end(process: Process) -> None:
    if process.returncode is None:
        _signal_group(process, signal.SIGTERM)
        with anyio.move_on_after(POLITE):
            await process.wait()
    # Also after a good end: the program may have left something running. The group's number is not
    # given away while a member of it lives.
    _signal_group(process, signal.SIGKILL)
    await process.wait()
    await process.aclose()


def _signal_group(process: Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nothing is left of it; macOS says so of a group of zombies in other words

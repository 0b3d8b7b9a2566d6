"""Commands about the daemon's process: start, stop, restart, logs.

Owns how they are told, and how a line of the log is read by a person. How a process is started and
watched is `process`'s; none of them sends a message of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from memoryd.ctl import process
from memoryd.ctl.main import FINE, NOT_RUNNING, SAID_NO
from memoryd.ctl.words import tilde
from memoryd.errors import NotRunningError, StorageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import IO

    from memoryd.ctl.shell import Shell

LOG_LINE = 2000
"""Bytes of a line of the log, generously, for finding the last ones without reading all."""

NOT_SHOWN = frozenset({"timestamp", "level", "event"})
"""Members of a line that stand in front, or are the line."""


def start(_: Namespace, shell: Shell) -> int:
    """A daemon that answers."""
    _say(process.start(shell.env), shell)
    return FINE


def stop(_: Namespace, shell: Shell) -> int:
    """No daemon; where there was none, one line and exit code 3."""
    try:
        pid = process.stop(shell.env)
    except NotRunningError as error:
        if _is_there(error):
            raise
        shell.complain(f"nothing to stop: {error}")
        return NOT_RUNNING
    shell.say(f"memoryd stopped, process {pid}")
    return FINE


def restart(_: Namespace, shell: Shell) -> int:
    """A new daemon."""
    try:
        process.stop(shell.env)
    except NotRunningError as error:
        if _is_there(error):
            raise
    _say(process.start(shell.env), shell)
    return FINE


def logs(typed: Namespace, shell: Shell) -> int:
    """The last lines of the log; with -f those that come."""
    file = process.log_file(shell.env)
    if not file.exists():
        shell.complain(f"no log yet: {file}", "memoryctl start")
        return SAID_NO
    lines = _followed(file, typed.limit) if typed.follow else _last(file, typed.limit)
    for line in lines:
        for row in _rows(_readable(line), shell.width) if shell.terminal else [line]:
            shell.say(row)
        shell.out.flush()
    return FINE


def _say(started: process.Started, shell: Shell) -> None:
    found = started.version
    word = "started" if started.fresh else "runs already"
    socket = tilde(str(started.socket), str(shell.home))
    shell.say(f"memoryd {found.version} {word}, process {found.pid}, on {socket}")


def _is_there(error: NotRunningError) -> bool:
    """Something sits on the socket that has to be mended first: the hint is not to start one."""
    return error.hint != NotRunningError.hint


def _last(file: Path, limit: int) -> Iterator[str]:
    try:
        with file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            start = log.seek(max(0, size - limit * LOG_LINE))
            lines = log.read().decode("utf-8", "replace").rstrip("\n").split("\n")
    except OSError as error:
        raise StorageError(file, "read", error.strerror or str(error)) from error
    whole = lines[1:] if start else lines
    yield from whole[-limit:]


def _followed(file: Path, limit: int) -> Generator[str, None, None]:
    """By the system's `tail`, which waits for changes and finds a log that was put aside."""
    command = ["tail", "-n", str(limit), "-F", str(file)]
    # Its words on a log that was put aside are for nobody.
    with subprocess.Popen(  # noqa: S603  our own file
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as tail:
        assert tail.stdout is not None
        try:
            yield from _decoded(tail.stdout)
        finally:
            tail.terminate()


def _decoded(stream: IO[bytes]) -> Iterator[str]:
    for line in stream:
        yield line.decode("utf-8", "replace").rstrip("\n")


def _readable(line: str) -> str:
    """`09:14:05 info     save  project=alpha outcome=done` of a line of JSON."""
    try:
        found = json.loads(line)
        at, level, event = found["timestamp"], found["level"], found["event"]
    except (ValueError, KeyError, TypeError):
        return line
    facts = "  ".join(f"{name}={_value(found[name])}" for name in found if name not in NOT_SHOWN)
    return f"{_local(str(at))} {level:<8} {event}  {facts}".rstrip()


def _rows(line: str, width: int) -> list[str]:
    """As a terminal shows it: broken between words, what goes on stands further in."""
    import textwrap  # noqa: PLC0415  only here

    rows = textwrap.wrap(
        line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return rows or [""]


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _local(at: str) -> str:
    """The log's UTC time as the local one."""
    from datetime import datetime  # noqa: PLC0415  only here

    try:
        return datetime.fromisoformat(at).astimezone().strftime("%m-%d %H:%M:%S")
    except ValueError:
        return at

"""The daemon's process as memoryctl sees it: starting it detached, asking it to end, waiting for both.

Owns what a started daemon inherits. Nobody is signalled here, and no pid is remembered anywhere: the
kernel says who listens on the socket.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import memoryd
from memoryd import paths
from memoryd.ctl.client import Client
from memoryd.errors import MemorydError, NotRunningError, StorageError
from memoryd.protocol import GetVersion, Shutdown, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO

START_LIMIT = 15.0
"""Seconds until a daemon has to answer; it takes part of one where nobody else wants the processor."""

QUICKER_LIMIT = 3.0
"""Seconds that another daemon, which was started at the same time, has to answer."""

ALREADY_RUNNING = 75
"""How a daemon ends that finds another one's locks."""

STOP_LIMIT = 6.0
"""Seconds: the daemon gives itself five."""

LOOK = 0.02
"""Seconds between two tries to connect to a daemon that starts; no event tells of it."""

LOG_TAIL = 65_536
"""Bytes at the end of the log in which its last line is looked for."""

ROOM_WANTED = 1024 * 1024
"""Bytes: with less, the ledger can't be written to for long."""

HINT_FRONT = "try: "
"""How the daemon begins the line with the command that mends what it just named."""

PASSED_ON = frozenset({"HOME", "PATH", "LANG"})
PASSED_ON_FRONTS = ("LC_", "XDG_", "MEMORYD_")
"""All that a daemon started inside a coding session gets of its environment."""

SESSIONS_OWN = frozenset(
    {"CLAUDECODE", "CLAUDE_PID", "CLAUDE_EFFORT", "CLAUDE_ENV_FILE", "AI_AGENT"}
)
SESSIONS_OWN_FRONTS = (
    "CLAUDE_CODE_SESSION_",
    "CLAUDE_CODE_CHILD_",
    "CLAUDE_CODE_MESSAGING_",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_PLUGIN_",
    "CLAUDE_PROJECT_",
)
"""What describes one session and nothing else; a person's own settings for the client stay."""

NOT_FOR_A_DAEMON = frozenset({"MEMORYD_CHILD", "MEMORYD_DISABLE"})
"""They tell a session's hooks to keep still."""


class StartError(MemorydError):
    """The daemon did not come up; `fact` is its own last word where it left one."""

    def __init__(self, fact: str, hint: str = "memoryctl logs") -> None:
        self.fact = fact
        self.hint = hint
        super().__init__(fact)

    def __str__(self) -> str:
        return f"memoryd did not start: {self.fact}"


class StopError(MemorydError):
    """The daemon was asked to end and is still there."""

    hint = "memoryctl logs"

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(pid)

    def __str__(self) -> str:
        return f"memoryd (process {self.pid}) still runs {STOP_LIMIT:g} s after it was asked to end"


@dataclass(frozen=True, slots=True)
class Started:
    """A daemon that answers; `fresh` where it was started for this."""

    version: Version
    socket: Path
    fresh: bool


class LastWord(NamedTuple):
    """A sentence, or empty, and the command that goes with it."""

    sentence: str
    hint: str = "memoryctl logs"


def log_file(env: Mapping[str, str]) -> Path:
    """Where a daemon that memoryctl started writes its log."""
    return paths.state_dir(env) / "log" / "memoryd.log"


def start(env: Mapping[str, str]) -> Started:
    """Have a daemon that answers.

    Raises StartError where it ends or is silent, NotRunningError where something else sits on the
    socket, UnsafePathError where its directories are not private.
    """
    client = Client(env)
    try:
        return Started(client.ask(GetVersion(), Version), client.socket, fresh=False)
    except NotRunningError as error:
        if error.hint != NotRunningError.hint:
            raise  # it is there and hangs, or the socket's directory has to be mended first
    file = log_file(env)
    paths.require_private_dir(paths.state_dir(env))
    paths.require_private_dir(file.parent)
    with _opened(file) as log:
        before = log.tell()
        process = _spawn(environment(env), file, log)
        version = _wait_until_it_answers(client, process, file, before)
    return Started(version, client.socket, fresh=version.pid == process.pid)


def stop(env: Mapping[str, str]) -> int:
    """Ask the daemon to end and wait for it; returns its pid.

    Raises NotRunningError where none answers, StopError where it does not end in time.
    """
    client = Client(env)
    pid = client.daemon_pid()
    with _watched(pid) as process:
        client.ask_raw(Shutdown())
        if not _wait_for_end(client, process):
            raise StopError(pid)
    return pid


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """What the daemon gets of the environment that memoryctl has.

    Typed inside a coding session only what it needs: a session's key and base URL are not its own.
    """
    keep = _passed_on if env.get("CLAUDECODE") else _not_a_sessions
    found = {name: value for name, value in env.items() if keep(name)}
    if root := _checkout():
        found["PYTHONPATH"] = root
    return found


def _passed_on(name: str) -> bool:
    wanted = name in PASSED_ON or name.startswith(PASSED_ON_FRONTS)
    return wanted and name not in NOT_FOR_A_DAEMON


def _not_a_sessions(name: str) -> bool:
    own = name in SESSIONS_OWN or name.startswith(SESSIONS_OWN_FRONTS)
    return not (own or name in NOT_FOR_A_DAEMON or name.startswith("PYTHON"))


def _checkout() -> str:
    """The folder to import memoryd from where it is not installed; else empty."""
    root = Path(memoryd.__file__).parents[1]
    return "" if root.name in ("site-packages", "dist-packages") else str(root)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    try:
        log = os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
    except OSError as error:
        raise StorageError(file, "write", error.strerror or str(error)) from error
    with log:
        log.seek(0, os.SEEK_END)
        yield log


def _spawn(env: Mapping[str, str], file: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process of its own session, so that closing the terminal does not end it.

    `-P`: the directory that memoryctl was typed in is no place to import from. Not `-I`: it hides
    packages that were installed for one user. What comes before the log is open goes into its file.
    """
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-P", "-m", "memoryd", "--log-file", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=env,
        cwd=paths.home(env),
        start_new_session=True,
    )


def _wait_until_it_answers(
    client: Client, process: subprocess.Popen[bytes], file: Path, before: int
) -> Version:
    """The version of the daemon that answers: this one, or another that was quicker."""
    for _ in _until(START_LIMIT):
        if version := _version(client):
            process.returncode = 0  # nobody waits for it: it was started to outlive us
            return version
        try:
            code = process.wait(LOOK)
        except subprocess.TimeoutExpired:
            continue
        quicker = _wait_for_the_quicker(client) if code == ALREADY_RUNNING else None
        if quicker is None:
            raise _ended(code, file, before)
        return quicker
    process.kill()
    process.wait()
    raise StartError(f"it gave no answer within {START_LIMIT:g} s")


def _wait_for_the_quicker(client: Client) -> Version | None:
    """Two were started at once: the one that holds the locks answers in a moment, if it is ours."""
    for _ in _until(QUICKER_LIMIT):
        if version := _version(client):
            return version
        time.sleep(LOOK)
    return None


def _version(client: Client) -> Version | None:
    with suppress(NotRunningError):
        return client.ask(GetVersion(), Version)
    return None


def _until(seconds: float) -> Iterator[None]:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        yield


def _ended(code: int, file: Path, before: int) -> StartError:
    word = last_word(file, before)
    if not word.sentence and (fault := room_fault(file.parent)):
        return StartError(fault, "df -h")
    return StartError(word.sentence or f"it ended with status {code}", word.hint)


def room_fault(folder: Path) -> str:
    """That the disk of `folder` (or of what is to hold it) is full, or empty."""
    try:
        while not folder.exists():
            folder = folder.parent
        disk = os.statvfs(folder)
    except OSError:
        return ""  # it can't be entered: that shows where it is opened
    left = disk.f_bavail * disk.f_frsize
    if left >= ROOM_WANTED:
        return ""
    return f"the disk of {folder} is full: {left // 1024} kB left"


def last_word(file: Path, since: int) -> LastWord:
    """What stands last in the log behind the offset `since`."""
    try:
        with file.open("rb") as log:
            log.seek(max(since, log.seek(0, os.SEEK_END) - LOG_TAIL))
            lines = log.read().decode("utf-8", "replace").strip().split("\n")
    except OSError:
        return LastWord("")
    hint = ""
    if lines[-1].startswith(HINT_FRONT):
        hint = lines.pop().removeprefix(HINT_FRONT)
    return LastWord(_sentence(lines[-1]) if lines else "", hint or LastWord("").hint)


def _sentence(line: str) -> str:
    """What a line of the log says: of JSON its fact, else its event; other text as it is."""
    try:
        found = json.loads(line)
    except ValueError:
        return line.strip().removeprefix("memoryd: ")
    if not isinstance(found, dict):
        return line.strip()
    return str(found.get("fact") or found.get("event") or line)


@contextmanager
def _watched(pid: int) -> Iterator[int]:
    """A descriptor that tells of the process's end; -1 where the system has none."""
    descriptor = -1
    if pid and sys.platform == "linux":
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _wait_for_end(client: Client, process: int) -> bool:
    """Whether it ended in time; where no descriptor tells, whether its socket is silent."""
    if process >= 0:
        return bool(select.select([process], [], [], STOP_LIMIT)[0])
    for _ in _until(STOP_LIMIT):
        try:
            client.daemon_pid()
        except NotRunningError:
            return True
        time.sleep(LOOK)
    return False

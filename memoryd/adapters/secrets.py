"""The API key: where it comes from, and that it shows nowhere.

Owns the order of the sources: systemd credential, `api_key_file`, macOS keychain, `api_key_command`, the
daemon's own environment; never a session's. The first source that is there decides: a faulty one is
named, not passed over, since the next one may be another account's. Does not know what the key is for.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from memoryd import paths
from memoryd.adapters import supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memoryd.config import Settings
    from memoryd.ports import Clock

CREDENTIAL = "anthropic-api-key"
"""Name of the systemd credential, a file in `$CREDENTIALS_DIRECTORY`."""

KEYCHAIN_SERVICE = "memoryd"
"""Service name of the entry in the macOS keychain."""

COMMAND_LIMIT = 10.0
"""Seconds that `api_key_command` may take."""

COMMAND_PAUSE = 60.0
"""Seconds after which a command that failed is tried again."""

SIZE_LIMIT = 4096
"""Bytes of a key file or of a command's output."""

_KEY = re.compile(r"[\x21-\x7e]{8,}\Z")


@dataclass(frozen=True, slots=True, repr=False)
class ApiKey:
    """A key and the name of its source."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source}, {len(self.value)} characters)"

    @property
    def digest(self) -> str:
        """Tells two keys apart without holding either."""
        return sha256(self.value.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class NoKey:
    """Why there is none, in one clause."""

    reason: str


Found = ApiKey | NoKey

NOT_SET = NoKey("no API key is set (api_key_file or api_key_command)")


class Secrets:
    """Looks the key up anew each time, so that a key that is put in place counts at once.

    Only what a command or the keychain gave is kept, until the config changes or `forget`.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        settings: Callable[[], Settings],
        clock: Clock,
        *,
        platform: str = sys.platform,
    ) -> None:
        self._env = env
        self._settings = settings
        self._clock = clock
        self._platform = platform
        self._kept: dict[str, tuple[float, Found]] = {}
        """By command line: when it ran, and what it gave."""
        self._seen: set[str] = set()

    async def prepare(self) -> None:
        """Ask the keychain, where there is one, so that `fault` knows."""
        if self._platform == "darwin":
            await self._run(_KEYCHAIN, "the keychain")

    @property
    def seen(self) -> frozenset[str]:
        """Every key that was handed out: the exact values to mask in what is written."""
        return frozenset(self._seen)

    def fault(self) -> str:
        """Why there is no key, in one clause, or an empty string.

        Looks at files: call in a thread. A command is not run here: it counts as a key unless it
        failed within the last minute.
        """
        command = self._settings().api_key_command
        found = self._in_files() or self._keychain()
        if found is None and command:
            found = self._kept_of(command)
            return found.reason if isinstance(found, NoKey) else ""
        found = found or self._in_environment()
        return found.reason if isinstance(found, NoKey) else ""

    async def find(self) -> Found:
        """The key. Runs `api_key_command` where nothing before it in the order is there."""
        found = await anyio.to_thread.run_sync(self._in_files) or await self._by_command()
        found = found or self._in_environment()
        if isinstance(found, ApiKey):
            self._seen.add(found.value)
        return found

    def forget(self) -> None:
        """The key was refused: a command is run again when the next one is asked for."""
        self._kept = {line: kept for line, kept in self._kept.items() if isinstance(kept[1], NoKey)}

    def stamp(self) -> str:
        """Changes when the key may have changed: other settings, another file. Call in a thread."""
        files = [file_stamp(path) for path in (self._credential(), self._key_file()) if path]
        return repr((self._settings(), files))

    def _in_files(self) -> Found | None:
        credential = self._credential()
        if credential is not None and credential.exists():
            return _read(credential, "the systemd credential", private=False)
        if file := self._key_file():
            return _read(file, "api_key_file", private=True)
        return None

    def _credential(self) -> Path | None:
        directory = self._env.get("CREDENTIALS_DIRECTORY", "")
        return Path(directory) / CREDENTIAL if directory.startswith("/") else None

    def _key_file(self) -> Path | None:
        named = self._settings().api_key_file
        return paths.expand(named, self._env) if named else None

    async def _by_command(self) -> Found | None:
        if self._platform == "darwin":
            found = self._keychain() or await self._run(_KEYCHAIN, "the keychain")
            if isinstance(found, ApiKey):
                return found
        if command := self._settings().api_key_command:
            return self._kept_of(command) or await self._run(command, "api_key_command")
        return None

    def _keychain(self) -> ApiKey | None:
        found = self._kept_of(_KEYCHAIN)
        return found if isinstance(found, ApiKey) else None

    def _kept_of(self, command: str) -> Found | None:
        at, found = self._kept.get(command, (0.0, None))
        if isinstance(found, NoKey) and self._clock.monotonic() - at > COMMAND_PAUSE:
            return None
        return found

    async def _run(self, command: str, source: str) -> Found:
        found = await _output_of(command, source, self._env)
        self._kept[command] = (self._clock.monotonic(), found)
        return found

    def _in_environment(self) -> Found:
        value = self._env.get("ANTHROPIC_API_KEY", "")
        return _checked(value, "the daemon's environment") if value else NOT_SET


_KEYCHAIN = f"/usr/bin/security find-generic-password -s {KEYCHAIN_SERVICE} -w"


async def _output_of(line: str, source: str, env: Mapping[str, str]) -> Found:
    """What `line` prints. It gets the daemon's environment: a password store needs its sockets."""
    try:
        argv = shlex.split(line)
    except ValueError:
        return NoKey(f"{source} has an open quote")
    if not argv:
        return NoKey(f"{source} is blank")
    command = supervisor.Command(tuple(argv), env)
    try:
        finished = await supervisor.run(command, deadline=COMMAND_LIMIT, limit=SIZE_LIMIT)
    except supervisor.ChildError as error:
        return NoKey(f"{source}: {error.fact}")
    return _checked_output(finished, source)


def _checked_output(finished: supervisor.Finished, source: str) -> Found:
    match finished.code:
        case 0:
            return _checked(finished.output.decode(errors="replace"), source)
        case None:
            return NoKey(f"{source} took more than {COMMAND_LIMIT:.0f} s")
        case supervisor.CANNOT_START:
            return NoKey(f"{source}: the program is not there")
        case code:
            return NoKey(f"{source} ended with status {code}")


def _read(path: Path, source: str, *, private: bool) -> Found:
    """The key in a file; `private`: only where nobody else can read it (systemd sees to its own)."""
    try:
        # Not blocking: the name may be that of a pipe nobody writes to.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(SIZE_LIMIT) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        return NoKey(f"{source} {path} can't be read: {error.strerror}")
    if private and found.st_mode & paths.ANY_ACCESS_OF_OTHERS:
        return NoKey(f"{source} is open to others: chmod 600 '{path}'")
    if private and found.st_uid not in (0, os.geteuid()):
        return NoKey(f"{source} {path} belongs to uid {found.st_uid}")
    return _checked(data.decode(errors="replace"), source)


def _checked(text: str, source: str) -> Found:
    value = text.strip()
    return ApiKey(value, source) if _KEY.match(value) else NoKey(f"{source} holds no key")


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Differs when the file was replaced, written or opened to us; zeros where there is none."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_mode)

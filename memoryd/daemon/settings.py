"""The settings as they are now: a changed config file is taken without a restart.

Owns the current Config. A file that is wrong changes nothing; what is wrong with it can be asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memoryd import config
from memoryd.errors import ConfigError
from memoryd.protocol import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memoryd.config import Config


class LiveSettings:
    """Reads the file again when it changed; one look at it costs a few microseconds."""

    def __init__(self, env: Mapping[str, str], first: Config) -> None:
        self._env = env
        self._current = first
        self._seen = self._stamp()
        self._fault: ConfigError | None = None
        self._wanted_root = first.memory_root
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> Config:
        """The settings now."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            self._read()
        return self._current

    def tell(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def warnings(self) -> list[Warned]:
        """What is wrong with the file as it is, or not taken from it."""
        if self._fault is not None:
            sentence = f"the changed config is not taken: {self._fault}"
            return [Warned(code="config_wrong", sentence=sentence, hint=self._fault.hint)]
        if self._wanted_root != self._current.memory_root:
            sentence = f"memory_root is now {self._wanted_root}, which takes a restart"
            return [Warned(code="config_late", sentence=sentence, hint="memoryctl restart")]
        return []

    def _read(self) -> None:
        try:
            found = config.load(self._env)
        except ConfigError as fault:
            self._fault = fault
            return
        self._fault = None
        self._wanted_root = found.memory_root
        # its lock is held on the root of the start: another one takes a restart
        self._current = replace(found, memory_root=self._current.memory_root)
        for listener in self._listeners:
            listener()

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._current.file.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_ino, found.st_size)

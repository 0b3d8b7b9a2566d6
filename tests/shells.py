"""Shells for tests of memoryctl: what it writes is kept, and a terminal is one that says so."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.ctl import main, parser
from memoryd.ctl.shell import Shell, Streams

if TYPE_CHECKING:
    from collections.abc import Mapping


CWD = "/home/user/alpha"
"""Where a test types."""

REPOSITORY = Path(main.__file__).parents[2]


def process(
    env: Mapping[str, str], *words: str, stdin: bytes | None = None, code: str = "sys.exit(code)"
) -> subprocess.CompletedProcess[bytes]:
    """memoryctl as a process of its own; `code` runs behind it, in it."""
    script = f"import sys; from memoryd.ctl.main import main; code = main(); {code}"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**env, "PYTHONPATH": str(REPOSITORY)},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=60.0,
        check=False,
    )


class Stream(io.TextIOWrapper):
    """Keeps what is written; `terminal` is what `isatty` says."""

    def __init__(self, *, terminal: bool) -> None:
        self._kept = io.BytesIO()
        self._terminal = terminal
        super().__init__(self._kept, encoding="utf-8", errors="backslashreplace", newline="")

    def isatty(self) -> bool:
        return self._terminal

    @property
    def written(self) -> str:
        self.flush()
        return self._kept.getvalue().decode()


@dataclass
class Typed:
    """A memoryctl that is typed in `env`; what it said is in `out` and `err`."""

    env: Mapping[str, str]
    terminal: bool = False
    stdin: bytes = b""
    now: float = 0.0
    width: int = 80
    directory: str = CWD
    _streams: list[Stream] = field(default_factory=list)

    def __call__(self, *words: str) -> int:
        """The exit code."""
        out, err = Stream(terminal=self.terminal), Stream(terminal=False)
        self._streams = [out, err]
        shell = Shell(
            self.env,
            Streams(_Stdin(self.stdin), out, err),
            now=self.now,
            width=self.width,
            directory=self.directory,
            home=Path(self.env.get("HOME", "/home/user")),
        )
        typed = parser.parse(list(words))
        return main.attempt(main._function(typed.run), typed, shell)

    @property
    def out(self) -> str:
        return self._streams[0].written

    @property
    def err(self) -> str:
        return self._streams[1].written


class _Stdin(io.BytesIO):
    def isatty(self) -> bool:
        return not self.getvalue()

"""The shell that memoryctl was typed in: its environment, its streams, the time.

Owns how something gets out: on a terminal or into a pipe. Commands write nowhere else.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memoryd import paths
from memoryd.core.text import hazard, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import BinaryIO, TextIO

    from memoryd.ctl.client import Client
    from memoryd.ctl.render import Element

WIDTH = 80
"""Columns of a terminal that does not say."""


class Streams(NamedTuple):
    """Where a command reads and writes."""

    stdin: BinaryIO
    out: TextIO
    err: TextIO


class Shell:
    """What a command gets beside its arguments. No dataclass: that would be one more slow import.

    `now` are Unix seconds, `width` the terminal's columns, `directory` where it was typed (empty where
    that directory is gone), `home` the person's.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        streams: Streams,
        *,
        now: float,
        width: int,
        directory: str,
        home: Path,
    ) -> None:
        self.env = env
        self.stdin, self.out, self.err = streams
        self.now = now
        self.width = width
        self.directory = directory
        self.home = home
        self._client: Client | None = None

    @classmethod
    def of_process(cls) -> Shell:
        """The shell that this process was started by."""
        # A terminal's encoding that can't hold a character must not end a command with a traceback.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        return cls(
            os.environ,
            Streams(sys.stdin.buffer, sys.stdout, sys.stderr),
            now=time.time(),
            width=_width(),
            directory=_directory(),
            home=paths.home(os.environ),
        )

    @property
    def terminal(self) -> bool:
        """Whether somebody reads what is written."""
        return self.out.isatty()

    @property
    def colour(self) -> bool:
        return self.terminal and not self.env.get("NO_COLOR") and self.env.get("TERM") != "dumb"

    @property
    def session(self) -> str:
        """The coding session's id; empty where a person typed."""
        return self.env.get("CLAUDE_CODE_SESSION_ID", "")

    @property
    def client(self) -> Client:
        """The way to the daemon."""
        if self._client is None:
            from memoryd.ctl.client import Client  # noqa: PLC0415  half of memoryctl's start

            self._client = Client(self.env)
        return self._client

    def show(self, elements: Iterable[Element]) -> None:
        """A screen: drawn on a terminal, plain elsewhere."""
        from memoryd.ctl import render  # noqa: PLC0415  most commands say a sentence

        if self.terminal:
            render.draw(elements, self.out, width=self.width, colour=self.colour)
        else:
            self.out.write(render.plain(elements))

    def say(self, sentence: str) -> None:
        """One line."""
        self.out.write(printable(sentence) + "\n")

    def text(self, text: str) -> None:
        """Text of a person: as it is in a pipe or a file, harmless on a terminal."""
        if self.terminal:
            text = printable(text.replace("\r\n", "\n"), layout=True)
            self.out.write(text if text.endswith("\n") or not text else f"{text}\n")
        else:
            self.out.flush()
            self.out.buffer.write(text.encode("utf-8", "replace"))

    def json(self, body: bytes) -> None:
        """A message as it is on the wire; hazardous characters as JSON's own escapes."""
        text = body.decode("utf-8", "replace").strip("\n")
        if self.terminal:
            text = _indented(body) or text
        self.out.write(escaped(text) + "\n")
        self.out.flush()

    def note(self, sentence: str) -> None:
        """One line beside the output."""
        self.err.write(printable(sentence) + "\n")

    def complain(self, sentence: str, hint: str = "") -> None:
        """What is wrong, and the command that mends it."""
        self.note(f"memoryctl: {sentence}")
        if hint:
            self.note(f"try: {hint}")


def _width() -> int:
    """Of the terminal on stdout, or COLUMNS; rich asks for it the same way."""
    named = os.environ.get("COLUMNS", "")
    if named.isascii() and named.isdigit() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(1).columns or WIDTH
    except OSError:
        return WIDTH


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _indented(body: bytes) -> str:
    import msgspec  # noqa: PLC0415  most commands say a sentence

    try:
        return msgspec.json.format(body, indent=2).decode("utf-8", "replace")
    except msgspec.DecodeError:
        return ""


def escaped(text: str) -> str:
    """JSON with each hazardous character as `\\uXXXX`: the same value, harmless on a terminal."""
    if not hazard(text, layout=True):
        return text
    return re.sub(r"[^\n\t -~]", lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    if not hazard(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

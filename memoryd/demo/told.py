"""How the demo tells its steps: a time, a name, a sentence.

Owns the layout; what happens, and when, is `play`'s.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memoryd.core.text import printable
from memoryd.ctl.render import Fields, Gap, Say, Span, line, status_line

if TYPE_CHECKING:
    from memoryd.ctl.render import Element, Line, Tone
    from memoryd.ctl.shell import Shell

NAME_WIDTH = 16
"""Columns of a step's name: UserPromptSubmit."""

BLANK = " " * 5
BAR = BLANK + "  │"
"""What stands in front of what belongs to a step; a step's time takes as much."""

_OUTCOMES: dict[str, Tone] = {"applied": "good", "moved": "good"}


class Teller:
    """Shows each step at once; times count from the making of this."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._start = time.monotonic()

    def say(self, sentence: str) -> None:
        self._show(Say(line(sentence, "strong")))

    def heading(self, title: str) -> None:
        """What the next steps are about."""
        self._show(Gap(), Say(line(title, "strong")))

    def step(self, name: str, sentence: str) -> None:
        """Something happened."""
        label = f"{time.monotonic() - self._start:5.1f}  {name:<{NAME_WIDTH}}"
        self._below(label, line(sentence))

    def aside(self, sentence: str) -> None:
        """More about the step before."""
        self._below(BLANK, line(sentence, "faint"))

    def change(self, outcome: str, text: str) -> None:
        """A change that the model asked for, and what became of it."""
        self._below(BLANK, (Span(f"{outcome}  ", _OUTCOMES.get(outcome, "warn")), Span(text)))

    def status_line(self, text: str) -> None:
        """As the person sees it below the prompt."""
        status, _, at = text.removeprefix("memory: ").rpartition(" · ")
        self._below(BLANK, status_line(status, at))

    def block(self, text: str) -> None:
        """A file or a text, as it is."""
        rows = printable(text.strip("\n"), layout=True).split("\n")
        self._show(Fields(tuple((BAR, line(row)) for row in rows), indent=0))

    def next_steps(self, steps: list[tuple[str, str]]) -> None:
        self._show(Gap(), Say(line("Next", "strong")))
        self._show(Fields(tuple((command, line(why, "faint")) for command, why in steps)))

    def _below(self, label: str, text: Line) -> None:
        self._show(Fields(((label, text),), indent=0))

    def _show(self, *elements: Element) -> None:
        self._shell.show(elements)
        self._shell.out.flush()

"""The status line: `memory: +4 -2 · 09:15`, plain or coloured."""

from __future__ import annotations

import re

from memoryd.core.memory.report import SAVING, STATUS_FRONT
from memoryd.core.text import printable

GREEN, YELLOW, RED, FAINT, PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"

_LEFT_OUT = r"\d+ (?:skipped|refused|rule\(s\) retired)"
_TOKEN = re.compile(
    rf"(?P<red>error: .*)"
    rf"|(?P<yellow>{_LEFT_OUT}|held for review.*)"
    rf"|(?P<green>[+~-]\d+|topic: .+?(?= {_LEFT_OUT}| \d+ duplicate|\Z))"
    rf"|(?P<faint>{SAVING}|no change|\d+ duplicates?|off|paused)"
)
_COLOURS = {"red": RED, "yellow": YELLOW, "green": GREEN, "faint": FAINT}


def line(status: str, clock: str, *, colour: bool) -> str:
    """One line; empty where there is no status. `clock` is the local time of day."""
    if not status:
        return ""
    status = printable(status)
    if not colour:
        return f"{STATUS_FRONT}{status} · {clock}"
    painted = _TOKEN.sub(_paint, status)
    return f"{STATUS_FRONT}{painted}{FAINT} · {clock}{PLAIN}"


def _paint(found: re.Match[str]) -> str:
    assert found.lastgroup is not None  # each alternative is a group
    return f"{_COLOURS[found.lastgroup]}{found[0]}{PLAIN}"

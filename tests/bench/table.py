"""The screen of `make bench`: a line per figure, ours and its reference side by side."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import memoryd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Comparison

REQUIRED = ("P1", "P3", "P4", "P6", "P8", "P9", "P11")
"""Figures that no release may miss; the others are aimed at."""

_SCALES = {"ms": 1e3, "µs": 1e6, "MB": 1e-6, "/s": 1.0}
_SHAPE = "{:6} {:44} {:>8}  {:<36} {:>5}  {:<9} {}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure as it is shown; `note` stands below it."""

    figure: str
    what: str
    ours: str
    reference: str
    ratio: str
    goal: str
    met: bool
    note: str = ""

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        cells = (self.figure, self.what, self.ours, self.reference, self.ratio, self.goal, verdict)
        below = f"\n{'':6} {self.note}" if self.note else ""
        return _SHAPE.format(*cells).rstrip() + below


def compared(
    figure: str,
    what: str,
    found: Comparison,
    *,
    goal: float,
    against: str,
    unit: str = "ms",
    note: str = "",
) -> Row:
    """A figure with a reference of its own: its ratio has to be at most `goal`."""
    return Row(
        figure,
        what,
        shown(median(found.ours), unit),
        f"{shown(median(found.reference), unit)}  {against}",
        f"{found.ratio:.2f}",
        f"≤ {goal:g}",
        found.ratio <= goal,
        note,
    )


def valued(
    figure: str, what: str, value: float, *, goal: float, unit: str, reference: str, note: str = ""
) -> Row:
    """A figure whose goal is a value, not a ratio; both in seconds, bytes or times a second."""
    top = f"≤ {goal * _SCALES[unit]:g} {unit}"
    return Row(figure, what, shown(value, unit), reference, "", top, value <= goal, note)


def shown(value: float, unit: str) -> str:
    """Seconds or bytes in the unit, three digits of them."""
    scaled = value * _SCALES[unit]
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2  # three in all
    return f"{scaled:.{digits}f} {unit}"


def head() -> str:
    """What was measured where, and the names of the columns."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {load()}"
    ours = f"memoryd {memoryd.__version__}, Python {platform.python_version()}, {machine}"
    columns = ("", "what", "ours", "reference", "ratio", "goal")
    return f"{ours}\n\n{_SHAPE.format(*columns, '').rstrip()}"


def summary(rows: Sequence[Row]) -> str:
    """How many are met, and which are not."""
    missed = [f"{row.figure} {row.what}" for row in rows if not row.met]
    required = [row for row in rows if row.figure in REQUIRED]
    first = f"\nmet: {len(rows) - len(missed)} of {len(rows)}"
    if required:
        first += f"; of the required ({', '.join(REQUIRED)}): "
        first += f"{sum(row.met for row in required)} of {len(required)}"
    return "\n".join([first, *(f"missed: {name}" for name in missed), load()])


def load() -> str:
    """How busy the machine is: p99 and the longest are another program's on a busy one."""
    return f"load average {os.getloadavg()[0]:.1f}"

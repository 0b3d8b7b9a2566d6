"""Times, sizes and paths in the words that a person reads.

Owns their forms, and where one unit gives way to the next; knows nothing of what is measured.
"""

from __future__ import annotations

import time

FOREVER = 100 * 366 * 86_400.0
"""Seconds: what lies further ahead has no end."""

MINUTE, HOUR, DAY = 60, 3600, 86_400

SHORT_FROM = 10_000
"""From here on `12.3k`."""


def clock(at: float, now: float) -> str:
    """Local time of Unix seconds: `09:14` today, `11-29 09:14` this year, else with the year."""
    then, today = time.localtime(at), time.localtime(now)
    if then[:3] == today[:3]:
        form = "%H:%M"
    else:
        form = "%m-%d %H:%M" if then.tm_year == today.tm_year else "%Y-%m-%d %H:%M"
    return time.strftime(form, then)


def until(at: float, now: float) -> str:
    """`until 09:14`, as `clock` says it; `until resume` where it has no end."""
    return "until resume" if at - now > FOREVER else f"until {clock(at, now)}"


def age(seconds: float) -> str:
    """`0.4 s`, `45 s`, `12 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if seconds < MINUTE / 10 else f"{int(seconds)} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE:.0f} min"
    large, small = (DAY, HOUR) if seconds >= DAY else (HOUR, MINUTE)
    names = ("d", "h") if seconds >= DAY else ("h", "min")
    rest = seconds % large // small
    whole = f"{seconds // large:.0f} {names[0]}"
    return f"{whole} {rest:.0f} {names[1]}" if rest else whole


def number(value: int) -> str:
    """`42,000`."""
    return f"{value:,}"


def short(value: int) -> str:
    """`9,800`, `12.3k`, `4.5M`."""
    if value < SHORT_FROM:
        return number(value)
    thousands = value / 1000
    return f"{thousands:.1f}k" if round(thousands, 1) < 1000 else f"{thousands / 1000:.1f}M"  # noqa: PLR2004


def tilde(path: str, home: str) -> str:
    """A path with `~` for the person's home."""
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def duration(seconds: float) -> str:
    """Seconds as the config writes them: `10 min`, `90 s`, `2 h`."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s")):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"

"""How many lines a text gained and lost: the counts of a longest common subsequence.

A moved line is one removed and one added; one final newline makes no line.
"""

from __future__ import annotations


def line_counts(before: str, after: str) -> tuple[int, int]:
    """Lines (added, removed) between two texts."""
    old, new = _lines(before), _lines(after)
    start = 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    common = _common(old, new)
    return len(new) - common, len(old) - common


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _common(old: list[str], new: list[str]) -> int:
    """Length of a longest common subsequence, a row of the table at a time as bits (Hyyrö, 2004).

    An edit script (Myers, 1986) is as fast on a small edit and takes seconds on a large one.
    """
    wanted = set(new)
    old = [line for line in old if line in wanted]
    places: dict[str, int] = {}
    for at, line in enumerate(old):
        places[line] = places.get(line, 0) | 1 << at
    unmatched = every = (1 << len(old)) - 1
    for line in new:
        matched = unmatched & places.get(line, 0)
        unmatched = ((unmatched + matched) | (unmatched - matched)) & every
    return len(old) - unmatched.bit_count()

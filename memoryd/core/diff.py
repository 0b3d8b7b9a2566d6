"""How many lines a text gained and lost: the counts of a longest common subsequence.

A moved line is one removed and one added; one final newline makes no line.
"""

from __future__ import annotations


def line_counts(before: str, after: str) -> tuple[int, int]:
    """Lines (added, removed) between two texts, by the shortest edit script (Myers, 1986)."""
    old, new = _lines(before), _lines(after)
    start = 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    edits = _edit_distance(old, new)
    common = (len(old) + len(new) - edits) // 2
    return len(new) - common, len(old) - common


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _edit_distance(old: list[str], new: list[str]) -> int:
    """Fewest inserted and deleted lines; `reach[k]` is how far diagonal `k` got in `old`."""
    if not old or not new:
        return len(old) + len(new)
    reach = {1: 0}
    for edits in range(len(old) + len(new) + 1):
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while x < len(old) and 0 <= x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            reach[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return edits
    raise AssertionError("an edit script of all lines always exists")

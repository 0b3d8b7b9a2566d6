from __future__ import annotations

import random
import time
from difflib import SequenceMatcher
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.diff import line_counts

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "d\r"]), max_size=9).map("\n".join)


def longest_common(old: tuple[str, ...], new: tuple[str, ...]) -> int:
    """By the definition."""

    @cache
    def length(i: int, j: int) -> int:
        if i == len(old) or j == len(new):
            return 0
        if old[i] == new[j]:
            return 1 + length(i + 1, j + 1)
        return max(length(i + 1, j), length(i, j + 1))

    return length(0, 0)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("", "", (0, 0)),
        ("a\n", "a\n", (0, 0)),
        ("a", "a\n", (0, 0)),
        ("", "a\nb\n", (2, 0)),
        ("a\nb\n", "", (0, 2)),
        ("a\nb\nc\n", "a\nx\nc\n", (1, 1)),
        ("a\nb\nc\n", "b\nc\na\n", (1, 1)),
        ("a\nb\n", "b\na\n", (1, 1)),
        ("a\n", "a\n\n", (1, 0)),
        ("a\u2028b\n", "a\u2028c\n", (1, 1)),
        ("x\ny\n", "p\nq\nr\n", (3, 2)),
    ],
)
def test_counts_of_a_change(before: str, after: str, counts: tuple[int, int]) -> None:
    assert line_counts(before, after) == counts


@given(TEXTS, TEXTS)
def test_counts_are_those_of_a_longest_common_subsequence(before: str, after: str) -> None:
    old = tuple(before.removesuffix("\n").split("\n")) if before else ()
    new = tuple(after.removesuffix("\n").split("\n")) if after else ()
    common = longest_common(old, new)
    assert line_counts(before, after) == (len(new) - common, len(old) - common)


@given(TEXTS, TEXTS)
def test_the_way_back_has_the_counts_the_other_way_round(before: str, after: str) -> None:
    added, removed = line_counts(before, after)
    assert line_counts(after, before) == (removed, added)


def test_never_more_than_a_heuristic_diff() -> None:
    chance = random.Random(7)
    old = [str(chance.randrange(40)) for _ in range(200)]
    new = [line for line in old if chance.random() > 0.3] + ["x"] * 20
    new[50:90] = reversed(new[50:90])
    found = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    added, removed = line_counts("\n".join(old), "\n".join(new))
    assert added <= len(new) - sum(block.size for block in found)
    assert removed <= len(old) - sum(block.size for block in found)


def test_a_shuffled_file_of_5000_lines_is_quick() -> None:
    lines = [f"line {number}" for number in range(5_000)]
    shuffled = random.Random(7).sample(lines, len(lines))
    started = time.process_time()
    added, removed = line_counts("\n".join(lines), "\n".join(shuffled))
    assert time.process_time() - started < 10
    assert added == removed

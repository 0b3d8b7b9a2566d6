"""Timing for the benchmarks: pairs that take turns, medians, quantiles.

Only ratios travel between machines, and only within one run: ours and the reference take turns, and
the figure is the median over the pairs.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

PAIRS = 40
"""Fewest pairs of a figure."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; the defaults are what the figures are taken with."""

    pairs: int = PAIRS
    share: float = 1.0
    """Of sizes, counts and waits: a smoke run takes a small part of them."""

    def count(self, whole: int) -> int:
        """That part of `whole`, at least one."""
        return max(1, int(whole * self.share))


@dataclass(frozen=True, slots=True)
class Pairs(Generic[T]):
    """What each side gave, turn by turn."""

    ours: tuple[T, ...]
    reference: tuple[T, ...]

    def of(self, value: Callable[[T], float]) -> Comparison:
        return Comparison(tuple(map(value, self.ours)), tuple(map(value, self.reference)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number per turn and side."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return median(
            ours / reference for ours, reference in zip(self.ours, self.reference, strict=True)
        )


def interleaved(ours: Callable[[], T], reference: Callable[[], T], *, pairs: int) -> Pairs[T]:
    """Both, `pairs` times, in turn; who begins changes with each pair."""
    found: tuple[list[T], list[T]] = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 else (1, 0):
            found[side].append((ours, reference)[side]())
    return Pairs(tuple(found[0]), tuple(found[1]))


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie: 0.5 the middle, 0.99 the slow end."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the garbage collector of the measuring process itself."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

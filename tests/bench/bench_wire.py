"""Requests: P6, decoded and typed, beside the bare echo."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from bench.daemons import EVENT, Home, Wire, echo, fixture, hook_event
from bench.measure import interleaved, quantile
from bench.table import compared
from wire import short_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Plan
    from bench.table import Row

EACH = 200
KEPT = 400
"""Requests of one turn: with a connection each, on one connection."""

GOALS_EACH = (3.0, 4.0)
GOALS_KEPT = (7.0, 8.0)
"""Of p50 and p99."""


def p6(plan: Plan) -> Iterator[Row]:
    """Request latency."""
    with short_dir() as folder, one_cpu():
        home = Home(folder).make()
        main = hook_event("tools_ran", fixture("PostToolBatch-main"), str(home.project))
        with home.daemon() as ours, echo(folder) as reference:
            for event, whose in ((EVENT, "a subagent's tools"), (main, "a session's tools")):
                yield from _compared(ours.wire, reference.wire, event, whose, plan)


def _compared(ours: Wire, reference: Wire, event: bytes, whose: str, plan: Plan) -> Iterator[Row]:
    ways = (
        ("a connection each", Wire.with_a_connection_each, EACH, GOALS_EACH),
        ("kept open", Wire.kept_open, KEPT, GOALS_KEPT),
    )
    for how, ask, count, goals in ways:
        ask(ours, event, 2)
        found = interleaved(
            partial(ask, ours, event, plan.count(count)),
            partial(ask, reference, event, plan.count(count)),
            pairs=plan.pairs,
        )
        for share, goal in zip((0.5, 0.99), goals, strict=True):
            yield compared(
                "P6",
                f"{whose}, {how}, p{share * 100:.0f}",
                found.of(partial(quantile, share=share)),
                goal=goal,
                against="a bare echo",
                unit="µs",
            )


@contextmanager
def one_cpu() -> Iterator[None]:
    """All processes on one CPU, where the system can do that.

    On two, a request's time is that of waking a sleeping one, which the scheduler decides anew for each
    process and which is twice that of the work.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


FIGURES = {"P6": p6}

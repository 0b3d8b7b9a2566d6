"""The daemon's process: P7 its start, P8 its memory and P9 its wake-ups where nobody asks anything."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.daemons import Home, echo, fixture, hook_event
from bench.measure import Comparison, interleaved
from bench.table import compared, valued
from wire import short_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.daemons import Service
    from bench.measure import Plan
    from bench.table import Row

PROJECTS = 30
"""That the daemon knows."""

IDLE_SECONDS = 60.0
SETTLED = 2.0
"""Seconds after the first answer until a process counts as idle."""

SLEEP = "import anyio; anyio.run(anyio.sleep_forever)"


def p7(plan: Plan) -> Iterator[Row]:
    """Start to first answer."""
    with short_dir() as folder:
        home = Home(folder).make()
        home.know(PROJECTS)
        _start(home.daemon())
        found = interleaved(
            lambda: _start(home.daemon()), lambda: _start(echo(folder)), pairs=plan.pairs
        )
        what = "start to first answer"
        yield compared("P7", what, found.of(float), goal=3.0, against="the echo server")


def p8(plan: Plan) -> Iterator[Row]:
    """Idle resident memory."""
    with short_dir() as folder:
        home = Home(folder).make()
        home.know(PROJECTS)
        ours, reference = [], []
        for _ in range(plan.pairs):
            # Both at once: memory, unlike time, is not shared out among those who run.
            with home.daemon() as daemon, echo(folder) as server:
                time.sleep(SETTLED * plan.share)
                ours.append(_resident(daemon))
                reference.append(_resident(server))
    found = Comparison(tuple(ours), tuple(reference))
    what = f"idle memory, {PROJECTS} projects known"
    yield compared("P8", what, found, goal=1.8, against="the echo server", unit="MB")
    starts = f"the most of {plan.pairs} starts"
    yield valued("P8", "idle memory, most", max(ours), goal=36e6, unit="MB", reference=starts)


def p9(plan: Plan) -> Iterator[Row]:
    """Wake-ups of an idle daemon that knows projects and a session that runs."""
    span = IDLE_SECONDS * plan.share
    with short_dir() as folder:
        home = Home(folder).make()
        home.know(PROJECTS)
        sleeper = subprocess.Popen([sys.executable, "-c", SLEEP])
        try:
            with home.daemon() as ours:
                prompt = fixture("UserPromptSubmit-typed-tui")
                ours.wire.answers(hook_event("prompt_submitted", prompt, str(home.project)))
                time.sleep(SETTLED * plan.share)
                pids = (ours.pid, sleeper.pid)
                before = [_switches(pid) for pid in pids]
                time.sleep(span)
                woken = [
                    _switches(pid) - earlier for pid, earlier in zip(pids, before, strict=True)
                ]
        finally:
            sleeper.kill()
            sleeper.wait()
    reference = f"{woken[1] / span:.2f} /s  anyio.sleep_forever"
    note = f"{woken[0]} wake-ups of all threads in {span:g} s"
    rate = woken[0] / span
    yield valued("P9", "idle wake-ups", rate, goal=0.1, unit="/s", reference=reference, note=note)


def _start(service: Service) -> float:
    """Seconds."""
    started = time.perf_counter()
    with service:
        return time.perf_counter() - started


def _resident(service: Service) -> float:
    """Bytes."""
    (line,) = _status(Path(f"/proc/{service.pid}/status"), "VmRSS:")
    return int(line.split()[1]) * 1024


def _switches(pid: int) -> int:
    """How often the process's threads were woken, ever."""
    return sum(
        int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir()
        for line in _status(task / "status", "voluntary_ctxt_switches:")
    )


def _status(file: Path, name: str) -> list[str]:
    return [line for line in file.read_text().split("\n") if line.startswith(name)]


FIGURES = {"P7": p7, "P8": p8, "P9": p9}

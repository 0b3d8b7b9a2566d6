"""The daemon's wire: P6 requests, P7 start, P8 memory, P9 wake-ups, P10 latency under load.

`python -m bench.bench_wire [--pairs N] [--daemon COMMAND] [P6 P7 …]` from the folder `tests`.
COMMAND starts a daemon that finds its places in the environment (MEMORYD_SOCKET, XDG_STATE_HOME,
MEMORYD_MEMORY_ROOT); without it the stand-in of `tests/tiny_daemon.py` runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Self

from bench import loads
from bench.measure import (
    PAIRS,
    interleaved,
    no_collection,
    quantile,
    show_ratio,
    show_value,
)
from wire import REPOSITORY, request, short_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EACH = 200
KEPT = 400
"""Requests of one turn: with a connection each, on one connection."""

IDLE_SECONDS = 60.0
SETTLED = 2.0
"""Seconds after the first answer until a process counts as idle."""

START_LIMIT = 30.0
RECEIVED = 1 << 16

ECHO = Path(__file__).with_name("echo_server.py")
SLEEP = "import anyio; anyio.run(anyio.sleep_forever)"

EVENT = request(
    "/v1/tools_ran",
    (REPOSITORY / "tests/fixtures/events/PostToolBatch-subagent.json").read_bytes(),
    headers={
        "memoryd-event": "0123456789abcdef0123456789abcdef",
        "memoryd-part": "0",
        "memoryd-project-dir": b"/home/user/demo".hex(),
        "memoryd-pid": b"4711".hex(),
        "memoryd-executable": b"/usr/bin/claude".hex(),
        "memoryd-entrypoint": b"cli".hex(),
        "memoryd-attended": b"1".hex(),
        "memoryd-origin": b"/home/user/.claude/plugins/memoryd/shim.py".hex(),
    },
)
"""A subagent's tools, as a shim sends them: decoded and typed, and nothing for the ledger."""


@dataclass(slots=True)
class Service:
    """A process that answers on a socket: ours or the echo."""

    command: Sequence[str]
    path: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.perf_counter() + START_LIMIT
        while not self._answers():
            if time.perf_counter() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"does not start: {shlex.join(self.command)}")
            time.sleep(0.0005)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.path.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(os.fspath(self.path))
        return client

    def with_a_connection_each(self) -> list[float]:
        """Seconds of each request of a turn."""
        found = []
        with no_collection():
            for _ in range(EACH):
                started = time.perf_counter()
                client = self.connect()
                client.sendall(EVENT)
                client.recv(RECEIVED)
                client.close()
                found.append(time.perf_counter() - started)
        return found

    def kept_open(self, count: int = KEPT) -> list[float]:
        """The same on one connection."""
        found = []
        with self.connect() as client, no_collection():
            for _ in range(count):
                started = time.perf_counter()
                client.sendall(EVENT)
                client.recv(RECEIVED)
                found.append(time.perf_counter() - started)
        return found

    def _answers(self) -> bool:
        try:
            with self.connect() as client:
                client.sendall(EVENT)
                return client.recv(RECEIVED) != b""
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the daemon lives during a run, and how it is started."""

    folder: Path
    command: str
    pairs: int

    def ours(self) -> Service:
        state, root, path = (self.folder / name for name in ("state", "memory", "m.sock"))
        tiny = [str(REPOSITORY / "tests/tiny_daemon.py"), str(state), str(root), str(path)]
        environment = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")]),
            "MEMORYD_SOCKET": str(path),
            "MEMORYD_MEMORY_ROOT": str(root),
            "XDG_STATE_HOME": str(state),
            "XDG_CONFIG_HOME": str(self.folder),
        }
        command = shlex.split(self.command) if self.command else [sys.executable, *tiny]
        return Service(command, path, environment)

    def echo(self) -> Service:
        path = self.folder / "e.sock"
        return Service([sys.executable, str(ECHO), str(path)], path, {"PATH": os.environ["PATH"]})


def p6(bench: Bench) -> None:
    """Request latency, decoded and typed."""
    with bench.ours() as ours, bench.echo() as echo:
        each = interleaved(
            ours.with_a_connection_each, echo.with_a_connection_each, pairs=bench.pairs
        )
        kept = interleaved(ours.kept_open, echo.kept_open, pairs=bench.pairs)
    for found, how, goals in ((each, "a connection each", (3, 4)), (kept, "kept open", (7, 8))):
        for share, goal in zip((0.5, 0.99), goals, strict=True):
            show_ratio(
                "P6",
                f"request, {how}, p{share * 100:.0f}",
                found.of(lambda times, share=share: quantile(times, share)),  # type: ignore[misc]
                goal=goal,
                against="a bare echo",
                unit="µs",
            )


def p7(bench: Bench) -> None:
    """Start to first answer."""
    found = interleaved(
        lambda: _start(bench.ours()), lambda: _start(bench.echo()), pairs=bench.pairs
    )
    show_ratio("P7", "start to first answer", found.of(float), goal=3.0, against="the echo server")


def p8(bench: Bench) -> None:
    """Idle resident memory."""
    found = interleaved(
        lambda: _resident(bench.ours()), lambda: _resident(bench.echo()), pairs=bench.pairs
    ).of(float)
    show_ratio("P8", "idle memory", found, goal=1.8, against="the echo server", unit="MB")
    worst = max(found.ours) / 1e6
    show_value("P8", "idle memory, most", worst, goal=36, unit="MB", detail="of all starts")


def p9(bench: Bench, seconds: float = IDLE_SECONDS) -> None:
    """Wake-ups of an idle daemon."""
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        with bench.ours() as ours:
            time.sleep(SETTLED)
            before = [_switches(pid) for pid in (ours.pid, sleeper.pid)]
            time.sleep(seconds)
            woken = [
                _switches(pid) - earlier
                for pid, earlier in zip((ours.pid, sleeper.pid), before, strict=True)
            ]
    finally:
        sleeper.kill()
        sleeper.wait()
    detail = f"{woken[0]} wake-ups in {seconds:g} s, {woken[1]} of anyio.sleep_forever"
    show_value("P9", "idle wake-ups", woken[0] / seconds, goal=0.1, unit="/s", detail=detail)


def p10(bench: Bench, load: Callable[[Service, Path], None] | None = None) -> None:
    """Request latency while a model call starts, 100 MB are read and 200 files are synced.

    `load` makes that happen in the daemon and returns once it is over; the stand-in takes a request.
    """
    folder = bench.folder / "load"
    folder.mkdir()
    loads.write_transcript(folder / "transcript.jsonl")
    with bench.ours() as ours:
        found = interleaved(
            lambda: _under_load(ours, folder, load or _ask_for_load),
            lambda: ours.kept_open(4 * KEPT),
            pairs=bench.pairs,
        )
    for what, goal, value in (
        ("p99", 2.0, lambda times: quantile(times, 0.99)),
        ("max", 10.0, max),
    ):
        show_ratio(
            "P10",
            f"request under load, {what}",
            found.of(value),
            goal=goal,
            against="the idle daemon",
            unit="µs",
        )


def _start(service: Service) -> float:
    started = time.perf_counter()
    with service:
        return time.perf_counter() - started


def _resident(service: Service) -> float:
    """Bytes."""
    with service:
        time.sleep(SETTLED)
        status = Path(f"/proc/{service.pid}/status").read_text()
    (line,) = (line for line in status.split("\n") if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _switches(pid: int) -> int:
    """How often the process's threads were woken, ever."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().split("\n")
        total += sum(
            int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:")
        )
    return total


def _ask_for_load(service: Service, folder: Path) -> None:
    with service.connect() as client:
        client.sendall(request("/v1/save", {"cwd": str(folder)}))
        client.recv(RECEIVED)


def _under_load(
    service: Service, folder: Path, load: Callable[[Service, Path], None]
) -> list[float]:
    loading = Thread(target=load, args=(service, folder))
    loading.start()
    found: list[float] = []
    while loading.is_alive():
        found += service.kept_open(50)
    loading.join()
    return found


FIGURES = {"P6": p6, "P7": p7, "P8": p8, "P9": p9, "P10": p10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], default=list(FIGURES))
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--daemon", default="")
    asked = parser.parse_args()
    for figure in asked.figures:
        with short_dir() as folder:
            FIGURES[figure](Bench(folder, asked.daemon, asked.pairs))


if __name__ == "__main__":
    main()

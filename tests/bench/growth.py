"""Memory that reading a transcript takes: `python -m bench.growth FILE TURNS`, printed as JSON.

A process of its own: what another reading left behind would count.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.bench_transcript import MB, Growth, Session, write_session
from bench.measure import seconds


def main(file: Path, turns: int) -> None:
    warm = file.with_name("warm.jsonl")
    write_session(warm, size=MB // 10, live=MB // 10)
    Session(warm).one_more_turn()
    gc.collect()
    before = _resident()
    sessions: list[Session] = []
    first_read = seconds(partial(_open, file, sessions))
    for _ in range(turns):
        sessions[0].one_more_turn()
    found = Growth(_status("VmHWM") - before, first_read)
    sys.stdout.write(json.dumps(asdict(found)))


def _open(file: Path, sessions: list[Session]) -> None:
    sessions.append(Session(file))


def _resident() -> int:
    # the peak counts from here on
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().split("\n"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

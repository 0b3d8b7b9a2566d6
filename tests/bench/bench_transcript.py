"""Reading transcripts: P11 one more turn at 1 GB against 1 MB, P12 a cold read of 100 MB.

`python -m bench.bench_transcript [--pairs N] [P11 P12 …]` from the folder `tests`. The files are made
below a temporary folder (`TMPDIR`; 1.2 GB) and deleted. Reads meet a warm page cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import (
    PAIRS,
    Comparison,
    interleaved,
    no_collection,
    seconds,
    show_ratio,
    show_value,
)
from bench.transcript_rows import Host
from transcripts import Records

from memoryd.adapters.transcript_file import TranscriptFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 1_000_000
LIVE = 1 * MB
"""Bytes from the last compaction on, in both files of P11."""

SMALL, LARGE = 1 * MB, 1_000 * MB
COLD = 100 * MB
BOUNDARY_BEFORE_END = 5 * MB
COLD_PAIRS = 15
"""Pairs of P12, a second or two each."""

LONGEST_LIVE = 15 * MB
"""Bytes that a window of a million tokens takes in a transcript, about: the host compacts then."""

FILLER = 8 * MB
"""Bytes of rows that are repeated where nobody looks."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident bytes that reading took, in a process of its own, and the seconds of the first read."""

    resident: int
    first_read: float


def write_session(file: Path, *, size: int, live: int) -> None:
    """`size` bytes of transcript, the last compaction `live` bytes before the end."""
    filler = b"".join(Host(1).sessions(min(FILLER, size)))
    boundary = Records()
    boundary.leaf = "before"
    boundary.compaction("all before")
    with file.open("wb") as out:
        if size > live:
            for _ in range((size - live) // len(filler)):
                out.write(filler)
            out.write(boundary.data)
        out.writelines(Host(2).sessions(live))


class Session:
    """A transcript that grows by turns while it is followed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.files = TranscriptFiles()
        self.host = Host(3)
        self.end = self._read(since=0)

    def _read(self, *, since: int) -> int:
        return self.files.read(self.file, self.file.parent, since=since).end

    def one_more_turn(self) -> float:
        """Seconds to read a turn that was just appended."""
        data = b"".join(self.host.turn())
        with self.file.open("ab") as out:
            out.write(data)
        with no_collection():
            return seconds(self._read_on)

    def _read_on(self) -> None:
        self.end = self._read(since=self.end)


def one_more_turn(folder: Path, pairs: int) -> Comparison:
    """P11: seconds of reading a turn, at 1 GB and at 1 MB."""
    large, small = _session(folder, LARGE), _session(folder, SMALL)
    found = interleaved(large.one_more_turn, small.one_more_turn, pairs=pairs)
    return found.of(float)


def _session(folder: Path, size: int) -> Session:
    file = folder / f"{size}.jsonl"
    write_session(file, size=size, live=min(size, LIVE))
    return Session(file)


def growth(file: Path, turns: int) -> Growth:
    """What reading `file` and `turns` more turns takes, in a process of its own."""
    command = [sys.executable, "-m", "bench.bench_transcript", "--grow", str(file), str(turns)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return Growth(**json.loads(found.stdout))


def _grow(file: Path, turns: int) -> Growth:
    warm = file.with_name("warm.jsonl")
    write_session(warm, size=MB // 10, live=MB // 10)
    Session(warm).one_more_turn()
    gc.collect()
    before = _resident()
    started = time.perf_counter()
    session = Session(file)
    first_read = time.perf_counter() - started
    for _ in range(turns):
        session.one_more_turn()
    return Growth(_peak_resident() - before, first_read)


def cold_read(folder: Path, pairs: int, *, live: int = COLD) -> Comparison:
    """P12: seconds of a first read of 100 MB, and of `json.loads` over its lines.

    The last compaction lies `live` bytes before the end; by default there is none, and all is read.
    """
    file = folder / "cold.jsonl"
    write_session(file, size=COLD, live=live)

    def ours() -> float:
        return seconds(lambda: TranscriptFiles().read(file, folder, since=0))

    def reference() -> float:
        return seconds(lambda: _loads(file))

    return interleaved(ours, reference, pairs=pairs).of(float)


def _loads(file: Path) -> None:
    with file.open("rb") as lines:
        for line in lines:
            json.loads(line)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().split("\n"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


def _resident() -> int:
    # the peak counts from here on
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak_resident() -> int:
    return _status("VmHWM")


# ── the command ────────────────────────────────────────────────────────────────────────────────────


def _show_turn(folder: Path, pairs: int) -> bool:
    found = one_more_turn(folder, max(pairs, PAIRS))
    what = "reading one more turn, 1 GB of transcript"
    met = show_ratio("P11", what, found, goal=1.1, against="1 MB", unit="µs")
    large, small = (growth(folder / f"{size}.jsonl", PAIRS) for size in (LARGE, SMALL))
    more = (large.resident - small.resident) / MB
    detail = f"{large.resident / MB:.1f} MB at 1 GB, {small.resident / MB:.1f} MB at 1 MB"
    return show_value("P11", "memory of it", more, goal=8, unit="MB", detail=detail) and met


def _show_large(folder: Path, _: int) -> bool:
    file = folder / "large.jsonl"
    write_session(file, size=LARGE, live=BOUNDARY_BEFORE_END)
    found = growth(file, 0)
    detail = f"first read of 1 GB, last compaction 5 MB before its end: {found.first_read:.3f} s"
    value = found.resident / MB
    return show_value("48", "memory of a first read", value, goal=150, unit="MB", detail=detail)


def _show_cold(folder: Path, pairs: int) -> bool:
    against = "a json.loads loop"
    pairs = min(pairs, COLD_PAIRS)
    usual = cold_read(folder, pairs, live=LONGEST_LIVE)
    what = "cold read of 100 MB, 15 MB of it live"
    met = show_ratio("P12", what, usual, goal=0.3, against=against)
    whole = cold_read(folder, pairs)
    what = "cold read of 100 MB, never compacted"
    return show_ratio("P12", what, whole, goal=0.3, against=against) and met


FIGURES = {"P11": _show_turn, "48": _show_large, "P12": _show_cold}


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="bench_transcript", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5 * PAIRS)
    parser.add_argument("--grow", nargs=2, metavar=("FILE", "TURNS"), help=argparse.SUPPRESS)
    parser.add_argument("figures", nargs="*", choices=[[], *FIGURES], help="default: all")
    asked = parser.parse_args(arguments)
    if asked.grow:
        sys.stdout.write(json.dumps(asdict(_grow(Path(asked.grow[0]), int(asked.grow[1])))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        met = [FIGURES[name](Path(folder), asked.pairs) for name in asked.figures or FIGURES]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Reading transcripts: P11 one more turn at 1 GB against 1 MB, P12 a cold read of 100 MB.

The files are made below a temporary folder (`TMPDIR`; 1.2 GB) and deleted. Reads meet a warm page cache.
`case48` is a first read of a file that is almost all history.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Plan, interleaved, no_collection, seconds
from bench.table import compared, valued
from bench.transcript_rows import Host
from transcripts import Records
from wire import REPOSITORY

from memoryd.adapters.transcript_file import TranscriptFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.table import Row

MB = 1_000_000
LIVE = 1 * MB
"""Bytes from the last compaction on, in both files of P11."""

SMALL, LARGE = 1 * MB, 1_000 * MB
COLD = 100 * MB
BOUNDARY_BEFORE_END = 5 * MB
TURNS_PER_PAIR = 5
"""A turn takes less than a millisecond: more of them, and the median says more."""

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


def p11(plan: Plan) -> Iterator[Row]:
    """One more turn: its time and its memory do not depend on what was before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, small = (_written(folder, plan.count(size)) for size in (LARGE, SMALL))
        one, other = Session(large), Session(small)
        found = interleaved(
            one.one_more_turn, other.one_more_turn, pairs=TURNS_PER_PAIR * plan.pairs
        )
        what = "reading one more turn, 1 GB of transcript"
        yield compared("P11", what, found.of(float), goal=1.1, against="of 1 MB", unit="µs")
        at_large, at_small = (growth(file, plan.pairs) for file in (large, small))
    yield valued(
        "P11",
        "memory of it, over that at 1 MB",
        at_large.resident - at_small.resident,
        goal=8 * MB,
        unit="MB",
        reference=f"{at_large.resident / MB:.1f} MB at 1 GB, {at_small.resident / MB:.1f} MB at 1 MB",
    )


def p12(plan: Plan) -> Iterator[Row]:
    """A first read of 100 MB."""
    size = plan.count(COLD)
    with tempfile.TemporaryDirectory() as folder:
        for what, live in (
            ("15 MB of it live", plan.count(LONGEST_LIVE)),
            ("never compacted", size),
        ):
            file = Path(folder, "cold.jsonl")
            write_session(file, size=size, live=live)
            found = interleaved(
                partial(seconds, partial(_cold_read, file)),
                partial(seconds, partial(_loads, file)),
                pairs=plan.pairs,
            )
            yield compared(
                "P12",
                f"cold read of 100 MB, {what}",
                found.of(float),
                goal=0.3,
                against="a json.loads loop",
            )


def first_read(plan: Plan) -> Iterator[Row]:
    """Case 48: 1 GB, the last compaction shortly before its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "large.jsonl")
        write_session(file, size=plan.count(LARGE), live=plan.count(BOUNDARY_BEFORE_END))
        found = growth(file, 0)
    yield valued(
        "case48",
        "memory of a first read of 1 GB",
        found.resident,
        goal=150 * MB,
        unit="MB",
        reference=f"5 MB of it live; it took {found.first_read:.3f} s",
    )


def growth(file: Path, turns: int) -> Growth:
    """What reading `file` and `turns` more turns takes, in a process of its own."""
    command = [sys.executable, "-m", "bench.growth", str(file), str(turns)]
    path = f"{REPOSITORY}:{REPOSITORY / 'tests'}"
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    return Growth(**json.loads(found.stdout))


def _written(folder: Path, size: int) -> Path:
    file = folder / f"{size}.jsonl"
    write_session(file, size=size, live=min(size, LIVE))
    return file


def _cold_read(file: Path) -> None:
    TranscriptFiles().read(file, file.parent, since=0)


def _loads(file: Path) -> None:
    with file.open("rb") as lines:
        for line in lines:
            json.loads(line)


FIGURES = {"P11": p11, "P12": p12, "case48": first_read}

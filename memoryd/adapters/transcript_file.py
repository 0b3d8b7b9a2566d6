"""Reading the host's transcripts: from the last compaction on, and then only what is new.

Owns how far back a first read goes, what is remembered between reads and when that no longer holds. What
a line says is `transcript_lines`, which rows are live the core's. Calls block: they belong in a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from memoryd.adapters.transcript_bytes import NOWHERE, TranscriptBytes, opened, size_of
from memoryd.adapters.transcript_lines import add_events
from memoryd.core.transcript import Branch, Reading, Rewind, Row

if TYPE_CHECKING:
    from pathlib import Path

    from memoryd.core.transcript import Wanted

REMEMBERED = 8
"""Transcripts of which rows are kept in memory."""

SEGMENT = 2 * 1024 * 1024
"""Bytes that a first read decodes at once, from the end backwards, until it meets a compaction."""

MOST_SAID = 8_000_000
"""Characters sent to the model after which it stops where it finds none: twice what a window of a
million tokens holds, so that what was said before has left any window."""

MOST_READ = 128 * 1024 * 1024
"""Bytes that it goes back at most: images, and what the host keeps for itself, count here only."""

LOOK_BACK = 8 * 1024 * 1024
"""Bytes that it goes back at most behind the last compaction, for what was typed since the last save
and for the messages that the compaction preserved."""

_FINGERPRINT = 128
"""Bytes before the offset that must be the same still: the host may cut a file and write on."""

_BOUNDARY = b'"compact_boundary"'


@dataclass(slots=True)
class _Followed:
    """How far one file was read, and its rows."""

    device: int
    inode: int
    start: int
    """Offset from which on the rows are known."""
    offset: int
    """Offset behind the last line that was read."""
    fingerprint: bytes = b""
    branch: Branch = field(default_factory=Branch)

    def is_of(self, file: TranscriptBytes) -> bool:
        known = len(self.fingerprint)
        return (
            (self.device, self.inode) == (file.device, file.inode)
            and self.offset <= file.size
            and self.fingerprint == file.read(self.offset - known, known)
        )

    def read_on(self, file: TranscriptBytes) -> None:
        end = file.whole_end(self.offset)
        for event in _events(file, self.offset, end):
            self.branch.add(event)
        self.offset = end
        known = min(_FINGERPRINT, end)
        self.fingerprint = file.read(end - known, known)


class TranscriptFiles:
    """`ports.Transcripts` on the host's own files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, _Followed] = OrderedDict()

    def read(self, path: Path, root: Path, *, since: int) -> Reading:
        """The live branch from its last compaction on; see `ports.Transcripts`."""
        with opened(path, root) as file:
            followed = self._taken(path)
            if followed is None or not followed.is_of(file):
                followed = _first_read(file, since)
            followed.read_on(file)
            reading = followed.branch.reading(since=since, end=followed.offset)
            while (wanted := followed.branch.wanted) is not None:
                start = _start_with(file, wanted, followed.start)
                if start < followed.start:
                    followed = _Followed(file.device, file.inode, start, start)
                    followed.read_on(file)
                else:
                    followed.branch.give_up(wanted)
                reading = followed.branch.reading(since=since, end=followed.offset)
        if not followed.branch.outdated(since):
            self._keep(path, followed)
        return reading

    def size(self, path: Path) -> int:
        """Bytes now; 0 where there is no file."""
        return size_of(path)

    def forget(self, path: Path) -> None:
        """Drop what is remembered of it."""
        with self._lock:
            self._known.pop(path, None)

    def _taken(self, path: Path) -> _Followed | None:
        """Out of memory while it is read: two threads never share one branch."""
        with self._lock:
            return self._known.pop(path, None)

    def _keep(self, path: Path, followed: _Followed) -> None:
        with self._lock:
            self._known[path] = followed
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


def _events(file: TranscriptBytes, start: int, stop: int) -> list[Row | Rewind]:
    events: list[Row | Rewind] = []
    for at, raw in file.lines(start, stop):
        add_events(events, raw, at)
    return events


def _first_read(file: TranscriptBytes, since: int) -> _Followed:
    """The rows from the last compaction on, or from `since` if that is earlier, within the limits."""
    end = stop = file.whole_end(0)
    floor = file.next_line(max(0, end - MOST_READ))
    segments: list[list[Row | Rewind]] = []
    boundary = NOWHERE
    said = 0
    while stop > floor:
        start = _segment_start(file, floor, stop)
        segments.append(_events(file, start, stop))
        stop = start
        if boundary != NOWHERE:
            continue
        boundary = _boundary_in(segments[-1])
        said += sum(event.said for event in segments[-1] if isinstance(event, Row))
        if boundary != NOWHERE:
            since = max(since, boundary - LOOK_BACK)
            floor = max(floor, file.next_line(min(boundary, since)))
        elif said > MOST_SAID:
            floor = start
    followed = _Followed(file.device, file.inode, floor, end)
    for segment in reversed(segments):
        for event in segment:
            if event.offset >= floor:
                followed.branch.add(event)
    return followed


def _boundary_in(events: list[Row | Rewind]) -> int:
    """The offset of the last compaction, or NOWHERE."""
    for event in reversed(events):
        if isinstance(event, Row) and event.compaction is not None:
            return event.offset
    return NOWHERE


def _segment_start(file: TranscriptBytes, floor: int, stop: int) -> int:
    """Where a line starts about SEGMENT before `stop`, further off where lines are longer."""
    size = SEGMENT
    while (start := file.next_line(max(floor, stop - size))) >= stop:
        size *= 2
    return start


def _start_with(file: TranscriptBytes, wanted: Wanted, start: int) -> int:
    """Where to start so that the row is read too; `start` where it is not to be had."""
    floor = max(0, start - (MOST_READ if wanted.whole else LOOK_BACK))
    uuid = msgspec.json.encode(wanted.uuid)
    at = file.rfind((b'"uuid":' + uuid, b'"uuid": ' + uuid), start, floor)
    if at == NOWHERE:
        return start
    if not wanted.whole:
        return file.line_start(at)
    boundary = _last_boundary(file, at, floor)
    return file.next_line(floor) if boundary == NOWHERE else boundary


def _last_boundary(file: TranscriptBytes, before: int, floor: int) -> int:
    """Where the line of the last compaction starts; what only mentions one is passed over."""
    while (at := file.rfind((_BOUNDARY,), before, floor)) != NOWHERE:
        before = file.line_start(at)
        if _boundary_in(_events(file, before, file.next_line(before + 1))) != NOWHERE:
            return before
    return NOWHERE

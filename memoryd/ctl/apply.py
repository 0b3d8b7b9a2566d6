"""`memoryctl apply`: a memory file and a reply in, the new file and the account out; no daemon.

Owns the shape of the answers only; the work is `core/memory`'s.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from memoryd.core.memory import edit, report
from memoryd.core.memory import reply as replies
from memoryd.core.memory.document import repair
from memoryd.core.memory.ops import Terms
from memoryd.core.text import hazard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One line of input: without `typed`, no quotes are asked for."""

    project: str
    memory: str | None
    reply: str
    typed: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Case({self.project!r}, memory of {len(self.memory or '')} characters)"


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """What goes at the end of a topic file, with its final newline."""

    file: str
    append: str

    def __repr__(self) -> str:
        return f"Append({self.file!r}, {len(self.append)} characters)"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a case. `text` is the new MEMORY.md, null where it stays as it is.

    `error` is what the status line says after `error: `; a reply that can't be read is none, `event` has
    its cause.
    """

    outcome: str
    text: str | None = None
    topics: tuple[Append, ...] = ()
    added: int = 0
    removed: int = 0
    replaced: int = 0
    created: bool = False
    repaired: bool = False
    skipped: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    event: str | None = None
    status: str = ""
    error: str | None = None

    def __repr__(self) -> str:
        return f"Answer({self.outcome!r})"


def answers(lines: Iterable[bytes]) -> Iterator[str]:
    """A JSON line for each line of input; a malformed one answers `{"error": …}`."""
    for number, line in enumerate(lines, 1):
        try:
            case = _case(line)
        except (ValueError, RecursionError, msgspec.ValidationError) as fault:
            yield json.dumps({"error": f"line {number}: {fault}"})
        else:
            yield json.dumps(msgspec.to_builtins(answer(case)))


def answer(case: Case) -> Answer:
    """The reply of `case` read and applied to its memory, which is repaired first."""
    found = replies.read(case.reply)
    if isinstance(found, replies.Unreadable):
        return _unreadable(case, found)
    applied = edit.apply(case.memory, found, Terms(case.project, case.typed))
    written = applied.outcome in {"changed", "held"}
    faults = "; ".join(applied.faults)
    return Answer(
        outcome=applied.outcome,
        text=applied.text if written or applied.repaired else None,
        topics=tuple(Append(file=topic.file, append=topic.text + "\n") for topic in applied.topics),
        added=applied.added,
        removed=applied.removed,
        replaced=applied.replaced,
        created=applied.created,
        repaired=applied.repaired,
        skipped=applied.skipped,
        refused=tuple(str(refusal) for refusal in applied.refused),
        retired=applied.retired,
        duplicates=applied.duplicates,
        event=report.event(applied) or None,
        status=report.STATUS_FRONT + report.status(applied),
        error=f"not written: {faults}" if applied.outcome == "not_written" else None,
    )


def _unreadable(case: Case, found: replies.Unreadable) -> Answer:
    text = None if case.memory is None else repair(case.memory, case.project)
    return Answer(
        outcome="unreadable",
        text=text if text != case.memory else None,
        repaired=text != case.memory,
        event=report.unreadable_event(found),
    )


def _case(line: bytes) -> Case:
    """The case of one line; raises ValueError with a sentence. Lone surrogates pass."""
    try:
        raw: Any = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8 at byte {fault.start}") from fault
    except json.JSONDecodeError as fault:
        raise ValueError(f"not JSON: {fault.msg} at character {fault.pos}") from fault
    case = msgspec.convert(raw, Case)
    if not case.project.strip():
        raise ValueError("`project` is blank")
    if found := hazard(case.project):
        raise ValueError(f"`project` holds the character {found}")
    return case

"""What the person is told of a save: the status line's text and the event.

Both are plain text; colour is put on where they are shown. Nothing of it is ever sent to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.memory.appends import RETIRED_FILE
from memoryd.core.memory.files import BACKUP_FILE, FAILED_REPLY_FILE
from memoryd.core.memory.reply import NAMED_LENGTH
from memoryd.core.text import cut, plural, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memoryd.core.memory.edit import Applied
    from memoryd.core.memory.reply import Unreadable

FRONT = "MEMORY.md: "
STATUS_FRONT = "memory: "
SAVING = "saving…"

REARRANGED = f"{FRONT}rearranged into the four sections; former text in {BACKUP_FILE}"
CHANGED_MEANWHILE = "not written: MEMORY.md changed during the save"
MERGED = "merged over a concurrent edit"

STATUS_TOPICS = 3
EVENT_CUT = 119
"""Characters of an event's second line in the pane and in `status`, before `…`."""


def status(applied: Applied) -> str:
    """The status line's text, such as `+4 -2`, without its front and the clock."""
    if applied.outcome == "not_written":
        return error(f"not written: {'; '.join(applied.faults)}")
    if applied.outcome == "held":
        return f"held for review: {'; '.join(applied.faults)}"
    extras = [
        *_counted(len(applied.skipped), "skipped"),
        *_counted(len(applied.refused), "refused"),
        *([plural(len(applied.duplicates), "duplicate")] if applied.duplicates else []),
    ]
    if applied.outcome == "no_change":
        return ", ".join(["no change", *extras])
    retired = f"{len(applied.retired)} rule(s) retired" if applied.retired else ""
    parts = [*_signed(applied), _status_topics(applied), *extras, retired]
    return " ".join(part for part in parts if part)


def error(cause: str) -> str:
    """The status line's text for a failure."""
    return f"error: {cause}"


def event(applied: Applied, *, merged: bool = False) -> str:
    """The sentence for the person, or an empty string where nothing was changed or left out."""
    left_out = [
        *_listed(f"{len(applied.skipped)} skipped, not in the file", map(_named, applied.skipped)),
        *_listed("refused", (str(refusal) for refusal in applied.refused)),
        *_listed(f"retired from CRITICAL RULES, kept in {RETIRED_FILE}", applied.retired),
        *([plural(len(applied.duplicates), "duplicate")] if applied.duplicates else []),
    ]
    if applied.outcome == "no_change" and not left_out:
        return ""
    files = _files(applied)
    parts = [
        _headline(applied),
        *([f"appended to {', '.join(files)}"] if files and applied.outcome == "changed" else []),
        *left_out,
        *([MERGED] if merged else []),
    ]
    return FRONT + printable("; ".join(parts))


def unreadable_event(found: Unreadable, output_tokens: int | None = None) -> str:
    """The sentence for a reply that was not read; without tokens where nobody counted them."""
    parts = [
        f"reply not read ({found.cause})",
        *([] if output_tokens is None else [f"{output_tokens} output tokens"]),
        f"kept in {FAILED_REPLY_FILE}",
    ]
    return FRONT + "; ".join(parts)


def second_line(event_text: str) -> str:
    """An event as the faint line under the status line."""
    return cut(event_text.removeprefix(FRONT), EVENT_CUT)


def _headline(applied: Applied) -> str:
    if applied.outcome == "not_written":
        return f"not written: {'; '.join(applied.faults)}"
    if applied.outcome == "held":
        return f"held for review: {'; '.join(applied.faults)}"
    if applied.outcome == "no_change":
        return "no change"
    counts = [
        *(["created"] if applied.created else []),
        *_counted(applied.added, "added"),
        *_counted(applied.removed, "removed"),
        *_counted(applied.replaced, "replaced"),
    ]
    return ", ".join(counts) or "topic files only"


def _signed(applied: Applied) -> list[str]:
    counts = (("+", applied.added), ("-", applied.removed), ("~", applied.replaced))
    return [f"{sign}{count}" for sign, count in counts if count]


def _files(applied: Applied) -> list[str]:
    return list(dict.fromkeys(topic.file for topic in applied.topics))


def _status_topics(applied: Applied) -> str:
    stems = [file.removesuffix(".md") for file in _files(applied)]
    if not stems:
        return ""
    more = f" +{len(stems) - STATUS_TOPICS}" if len(stems) > STATUS_TOPICS else ""
    return f"topic: {', '.join(stems[:STATUS_TOPICS])}{more}"


def _counted(count: int, word: str) -> list[str]:
    return [f"{count} {word}"] if count else []


def _listed(front: str, entries: Iterable[str]) -> list[str]:
    joined = "; ".join(entries)
    return [f"{front}: {joined}"] if joined else []


def _named(line: str) -> str:
    return cut(line, NAMED_LENGTH)

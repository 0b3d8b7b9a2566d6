"""Topic files as a save sees them: what is appended, and whether MEMORY.md names the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memoryd.core.memory import rules
from memoryd.core.memory.reply import TopicAppend
from memoryd.core.text import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RETIRED_FILE = "history.md"
RETIRED_HEADING = "## Retired CRITICAL RULES"

INSIDE_MINIMUM = 12
"""Characters from which a removed line may stand inside a line of an append; a shorter one is one."""


def fault(append: TopicAppend) -> str:
    """Why an append may not be written, or an empty string."""
    return rules.character_fault(append.text, layout=True) or rules.mark_fault(append.text)


def of_retired(lines: Sequence[str]) -> TopicAppend:
    """The append that keeps lines taken out of CRITICAL RULES, as they stood."""
    return TopicAppend(RETIRED_FILE, "\n".join((RETIRED_HEADING, "", *lines)))


class Kept:
    """What topic appends hold, folded once for many questions."""

    def __init__(self, appends: Iterable[TopicAppend]) -> None:
        texts = [append.text for append in appends]
        self._texts = [fold(text) for text in texts]
        self._keys = {
            rules.key(line) for text in texts for line in text.split("\n") if line.strip()
        }

    def holds(self, line: str) -> bool:
        """Whether a removed line stands there: as a line of its own, or inside one."""
        wanted = rules.key(line)
        if wanted in self._keys:
            return True
        inside = fold(rules.content(line))
        return len(wanted) >= INSIDE_MINIMUM and any(inside in text for text in self._texts)


def names(line: str, file: str) -> bool:
    """Whether a line names the file as a whole name: `my-db.md` does not name `db.md`."""
    whole = (
        rf"(?<![A-Za-z0-9._-])(?<![A-Za-z0-9_-]/){re.escape(file)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
    )
    return bool(re.search(whole, line))


def appended(file: str, before: str | None, append: TopicAppend, project: str) -> str:
    """The file's text with the append at its end; `before` is None where there is no file yet.

    A blank line stands before the append, one newline at the end. Line ends of an existing file stay,
    new lines get the kind that most of them have.
    """
    eol = "\r\n" if before and 2 * before.count("\r\n") > before.count("\n") else "\n"
    text = f"# {project}: {file.removesuffix('.md')}\n" if before is None else before
    lead = "" if not text else eol if text.endswith("\n") else eol * 2
    if text.endswith(eol * 2):
        lead = ""
    return text + lead + append.text.replace("\n", eol) + eol

"""What an op may touch: the lines that stay, the user's words behind a rule, the user's edits.

Looks at the draft and never changes it. Whether a text may be written at all is `rules`' question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core import redact
from memoryd.core.memory import rules
from memoryd.core.memory.document import CRITICAL, SECTION_LEVEL, is_none_yet, is_title
from memoryd.core.memory.draft import NotFound
from memoryd.core.memory.reply import NAMED_LENGTH
from memoryd.core.text import cut, fold

if TYPE_CHECKING:
    from memoryd.core.memory.draft import Draft
    from memoryd.core.memory.ops import Start
    from memoryd.core.memory.reply import Op

NO_QUOTE = "touches CRITICAL RULES without words that the user typed"
REMOVED_BY_USER = "the user removed it during the save"


class Guard:
    """Answers for one pass over `draft`; `introduced` are the bullets that this pass put in."""

    def __init__(self, start: Start, draft: Draft) -> None:
        typed = start.terms.typed
        self.introduced: set[str] = set()
        self._start = start
        self._draft = draft
        self._typed = None if typed is None else tuple(map(fold, typed))

    def locate(self, op: Op) -> int | NotFound:
        """The line that the op names, if it is one line that the model saw as it is."""
        found = self._draft.find(op.line)
        if isinstance(found, NotFound) or self._start.concurrent is None:
            return found
        line = self._draft.lines[found].rstrip()
        if line in self.introduced or self._start.concurrent.untouched(line):
            return found
        return NotFound("changed during the save")

    def text_fault(self, bullet: str) -> str:
        """Why a bullet may stand nowhere."""
        if fault := rules.text_fault(bullet):
            return fault
        if self._start.has_secrets and (
            fault := rules.secret_fault(bullet, self._start.terms.secrets)
        ):
            return fault
        removed = self._start.concurrent is not None and self._start.concurrent.removed_by_user(
            bullet
        )
        return REMOVED_BY_USER if removed else ""

    def add_fault(self, op: Op, bullet: str) -> str:
        """Why `bullet` may not be added where the op says, but for a quote."""
        if fault := self.text_fault(bullet):
            return fault
        if self._draft.heading(op.section) is None:
            name = redact.mask(op.section.strip(), self._start.terms.secrets)
            return f"no heading “{cut(name, NAMED_LENGTH)}” in the file"
        return ""

    def line_fault(self, index: int) -> str:
        """Why a line may be neither replaced nor removed."""
        line = self._draft.lines[index].rstrip()
        outline = self._draft.outline
        if index in outline.fences:
            return "one line of a code fence"
        if index in outline.fenced:
            return ""
        level = next((found.level for found in outline.headings if found.at == index), 0)
        if is_title(line) or level == SECTION_LEVEL:
            return "a heading of level 1 or 2 stays"
        return ""

    def removal_fault(self, index: int) -> str:
        """Why a line may not be removed, but for a quote."""
        if fault := self.line_fault(index):
            return fault
        if self._start.offloading and self.is_critical(index):
            return "at a soft cap no line of CRITICAL RULES is removed, shorten it by replace"
        return ""

    def move_fault(self, add: Op, remove: Op, index: int) -> str:
        """Why the line at `index` may not go where `add` says."""
        bullet = rules.bullet(add.text)
        if fault := self.add_fault(add, bullet) or self.removal_fault(index):
            return fault
        if self.is_heading(index):
            return "a heading is not moved"
        quoted = self.quoted(add) or self.quoted(remove)
        return "" if quoted or self._may_move(index, add.section) else NO_QUOTE

    def may_add(self, op: Op) -> bool:
        """Whether the heading that the op names may get a new bullet from it."""
        return not self.adds_critical(op) or self.quoted(op)

    def may_remove(self, op: Op, index: int) -> bool:
        """Whether the op may take out the line: any but a rule, a rule with the user's words."""
        return (
            not self.is_critical(index) or self.quoted(op) or is_none_yet(self._draft.lines[index])
        )

    def may_replace(self, op: Op, index: int) -> bool:
        """Whether the op may reword the line: any but a rule, a rule with quote or only shortened."""
        if not self.is_critical(index) or self.quoted(op):
            return True
        old = self._draft.lines[index]
        return not self.is_heading(index) and rules.shortens(rules.words(op.text), rules.words(old))

    def quoted(self, op: Op) -> bool:
        """Whether the user's own words stand behind the op, where they are asked for."""
        return self._typed is None or rules.quoted(op.because, self._typed)

    def is_heading(self, index: int) -> bool:
        return any(found.at == index for found in self._draft.outline.headings)

    def is_critical(self, index: int) -> bool:
        return self._draft.section(index) == CRITICAL.casefold()

    def adds_critical(self, op: Op) -> bool:
        """Whether the heading that the op names is CRITICAL RULES or below it."""
        heading = self._draft.heading(op.section)
        return heading is not None and self.is_critical(heading.at)

    def _may_move(self, index: int, section: str) -> bool:
        """Within CRITICAL RULES, and into it what stood in the file: this reply may not smuggle there."""
        heading = self._draft.heading(section)
        if heading is None or not self.is_critical(heading.at):
            return not self.is_critical(index)
        return self.is_critical(index) or self._draft.lines[index].rstrip() not in self.introduced

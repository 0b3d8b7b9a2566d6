"""A reply on its way into the files: what it makes of a text, and the record that the run ends with.

Pure but for the ledger that it is handed at the end; `commit` asks it as often as the files change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from memoryd.core import diff, redact
from memoryd.core.memory import edit, report
from memoryd.core.memory.document import new_text
from memoryd.daemon.commit import Outcome
from memoryd.ports import Notices
from memoryd.protocol import OpRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memoryd.core.memory.edit import Applied
    from memoryd.core.memory.ops import OpResult, Terms
    from memoryd.core.memory.reply import Reply
    from memoryd.ports import Clock, Ledger
    from memoryd.protocol import RunRecord, RunState

_STATES: dict[edit.Outcome, RunState] = {
    "changed": "done",
    "no_change": "no_change",
    "held": "held",
    "not_written": "failed",
}

_CHANGED = report.CHANGED_MEANWHILE.partition(": ")[2]


@dataclass(frozen=True, slots=True)
class ReplyChange:
    """Implements commit.Change for one reply.

    `seen` is the text that the model was given, None where there was no file. `headless`: what the next
    interactive session is to be told stays for it.
    """

    reply: Reply
    terms: Terms
    seen: str | None
    run: RunRecord
    notices: Notices
    clock: Clock
    record_event: Callable[[Ledger, RunRecord], None]
    drop_on_edit: bool
    headless: bool

    def __repr__(self) -> str:
        return f"ReplyChange({self.run.id!r}, {self.reply!r})"

    def apply(self, current: str | None, *, begun: bool) -> Applied:
        """The reply applied to the file as it is now, by the stricter rule where it was edited."""
        if current == self.seen:
            return edit.apply(current, self.reply, self.terms)
        seen = new_text(self.terms.project) if self.seen is None else self.seen
        applied = edit.apply(current, self.reply, self.terms, seen=seen)
        # topics that are in place already can't be dropped: their unit is ended
        if not self.drop_on_edit or begun or applied.outcome == "no_change":
            return applied
        return edit.Applied(outcome="not_written", text=current or "", faults=(_CHANGED,))

    def outcome(self, applied: Applied, current: str | None, after: str) -> Outcome:
        """The run's end: its words for the person, its counts, what the next fork is told."""
        merged = current != self.seen and applied.outcome == "changed"
        lines = (0, 0)
        if applied.outcome == "changed":
            lines = diff.line_counts(current or "", applied.text)
        record = msgspec.structs.replace(
            self.run,
            state=_STATES[applied.outcome],
            ended_at=self.clock.now(),
            status=report.status(applied),
            event=redact.mask(report.event(applied, merged=merged), self.terms.secrets),
            failure="; ".join(applied.faults) if applied.outcome == "not_written" else "",
            merged=merged,
            after=after,
            lines_added=lines[0],
            lines_removed=lines[1],
            retired=len(applied.retired),
            topics=list(dict.fromkeys(topic.file for topic in applied.topics)),
        )
        held = applied.outcome == "held"
        ops = [self._op(result, held=held) for result in applied.ops]
        return Outcome(record, ops, self._told(applied))

    def begin(self, ledger: Ledger) -> None:
        """The run is in its last step."""
        ledger.put_run(msgspec.structs.replace(self.run, state="commit"))

    def finish(self, ledger: Ledger, outcome: Outcome) -> None:
        """End the run: its turn is owed no more, unless it asked again since."""
        record = outcome.record
        ledger.put_run(record)
        ledger.put_ops(record.id, outcome.ops)
        ledger.put_notices(record.project, outcome.notices)
        if not ledger.settle(record.session, record.asked):
            self._owe_the_rest(ledger)
        self.record_event(ledger, record)

    def _owe_the_rest(self, ledger: Ledger) -> None:
        """What the session asked since begins where this run left off."""
        owed = ledger.owed_by(self.run.session)
        if owed is not None:
            ledger.put_owed(
                msgspec.structs.replace(owed, run="", since=-1, attempts=0, retry_since=0.0)
            )

    def _op(self, result: OpResult, *, held: bool) -> OpRecord:
        op = result.op
        waits = held and result.outcome in {"applied", "moved", "duplicate"}
        return OpRecord(
            kind=op.kind,
            section=self._mask(op.section),
            line=self._mask(result.was or op.line),
            text=self._mask(op.text),
            outcome="held" if waits else result.outcome,
            reason=result.reason,
            because=self._mask(op.because),
        )

    def _told(self, applied: Applied) -> Notices:
        """For the next fork. A headless session neither takes nor clears what waits for a person's."""
        skipped = self._masked(applied.skipped)
        refused = self._masked(str(refusal) for refusal in applied.refused)
        offload = applied.outcome == "not_written" and not self._gave_way(applied)
        if self.headless:
            skipped = [*self.notices.skipped, *skipped]
            refused = [*self.notices.refused, *refused]
            offload = offload or self.notices.offload
        return Notices(skipped=skipped, refused=refused, offload=offload)

    def _gave_way(self, applied: Applied) -> bool:
        """Not written since the file was edited, and not since it did not fit."""
        return applied.faults == (_CHANGED,)

    def _masked(self, lines: Iterable[str]) -> list[str]:
        return [self._mask(line) for line in lines]

    def _mask(self, text: str) -> str:
        return redact.mask(text, self.terms.secrets)

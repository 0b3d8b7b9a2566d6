"""Applying a reply to a memory file: text in, text and a full account out.

The ops run in one pass; the result is checked as a whole, tried again without its additions where it
fails a cap, held where it would take out too much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from memoryd.core import redact
from memoryd.core.memory import appends
from memoryd.core.memory.document import (
    HARD_CHARACTERS,
    HARD_LINES,
    Size,
    is_bullet,
    new_text,
    repair,
    size,
)
from memoryd.core.memory.merge import Concurrent
from memoryd.core.memory.ops import OpResult, Pass, Start, Terms, bullets
from memoryd.core.memory.reply import Refusal, Reply, TopicAppend

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD_MINIMUM = 5
"""Fewer removed bullets than this are never held for review."""

Outcome = Literal["changed", "no_change", "not_written", "held"]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result: `text` is the file as it should be, `topics` all appends, retired rules' too.

    With outcome `held`, text and topics are what would be written; with `not_written` and `no_change`
    text is the file in shape, and there are no topics. Secrets are masked in all but `text` and `ops`.
    """

    outcome: Outcome
    text: str
    topics: tuple[TopicAppend, ...] = ()
    added: int = 0
    removed: int = 0
    replaced: int = 0
    created: bool = False
    repaired: bool = False
    skipped: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    retired: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Why it is not written, or how much would go where it is held."""
    ops: tuple[OpResult, ...] = ()

    def __repr__(self) -> str:
        return f"Applied({self.outcome!r}, +{self.added} -{self.removed} ~{self.replaced})"


def apply(memory: str | None, reply: Reply, terms: Terms, *, seen: str | None = None) -> Applied:
    """The reply applied to `memory`, which is None where there is no file.

    `seen` is the text that the model was given where that is another one: `memory` was edited since.
    """
    before = new_text(terms.project) if memory is None else repair(memory, terms.project)
    start = _start(before, reply, terms, seen)
    done = Pass(start, reply.ops, reply.topics)
    refused = list(reply.refused)
    faults = _faults(before, done)
    if faults:
        done = Pass(start, reply.ops, reply.topics, shrink=True)
        if done.dropped:
            refused.append(Refusal(done.dropped, "; ".join(faults)))
        faults = _faults(before, done)
    mask = partial(redact.mask, exact=terms.secrets)
    account = Applied(
        outcome="not_written",
        text=before,
        repaired=memory is not None and before != memory,
        skipped=tuple(map(mask, done.skipped)),
        refused=tuple(replace(each, what=mask(each.what)) for each in (*refused, *done.refused)),
        duplicates=tuple(done.duplicates),
        retired=tuple(map(mask, done.retired)),
        faults=faults,
        ops=tuple(done.results),
    )
    if faults:
        return replace(account, retired=(), ops=tuple(map(_undone, done.results)))
    return _written(account, done, terms, created=memory is None)


def _start(before: str, reply: Reply, terms: Terms, seen: str | None) -> Start:
    texts = (*(op.text for op in reply.ops), *(topic.text for topic in reply.topics))
    has_secrets = bool(redact.find("\n".join(texts), terms.secrets))
    if seen is None:
        return Start(before, terms, size(before).at_soft_cap, None, has_secrets)
    seen = repair(seen, terms.project)
    concurrent = Concurrent(seen, before) if seen != before else None
    return Start(before, terms, size(seen).at_soft_cap, concurrent, has_secrets)


def _written(account: Applied, done: Pass, terms: Terms, *, created: bool) -> Applied:
    changed = done.text != account.text or bool(done.topics)
    held = _held(account.text, done, terms.max_removal)
    if not changed:
        outcome: Outcome = "no_change"
    else:
        outcome = "held" if held else "changed"
    return replace(
        account,
        outcome=outcome,
        text=done.text,
        topics=tuple(done.topics),
        added=done.added,
        removed=done.removed,
        replaced=done.replaced,
        created=created and changed,
        faults=held,
    )


def _undone(result: OpResult) -> OpResult:
    """What is to be recorded of an op where the result is not written."""
    if result.outcome not in {"applied", "moved"} and not result.was:
        return result
    return replace(result, outcome="dropped", reason="not written", was="")


def _held(before: str, done: Pass, max_removal: float) -> tuple[str, ...]:
    """How much would go, where that is more than a save may take out unseen."""
    gone = [line for line in done.gone if is_bullet(line)]
    if len(gone) < HELD_MINIMUM:
        return ()
    total = bullets(before)
    if len(gone) <= max_removal * total:
        return ()
    if all(map(appends.Kept(done.topics).holds, done.gone)):
        return ()
    return (f"{len(gone)} of {total} bullets would be removed",)


def _faults(before: str, done: Pass) -> tuple[str, ...]:
    """What forbids writing the result; a file that was over a cap may be written as it shrinks."""
    if done.text == before:
        return ()
    old, new = size(before), size(done.text)
    faults = []
    if not done.in_shape:
        faults.append("the four sections would not stand in their order")
    if not (old.at_hard_cap and new.shrinks_from(old)):
        faults += _cap_faults(new)
    return tuple(faults)


def _cap_faults(found: Size) -> Sequence[str]:
    faults = []
    if found.lines >= HARD_LINES:
        faults.append(f"{found.lines} lines, the limit is under {HARD_LINES}")
    if found.characters >= HARD_CHARACTERS:
        faults.append(f"{found.characters:,} characters, the limit is under {HARD_CHARACTERS:,}")
    return faults

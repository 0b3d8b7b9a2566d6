"""When a turn asks for a save: a session's events in, its state and an ask out.

Owns the rule "only when there is something to read since the last save was asked for". Events are hints
(an interruption fires none, a scheduled prompt looks typed): what the transcript shows decides where it
can be read, see `worth_reading`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Reason = Literal["answer", "interrupted", "session_end", "process_gone", "idle", "asked"]

FINAL_REASONS = frozenset({"session_end", "process_gone", "idle", "asked"})
"""Nothing will come after it: whatever was left unread is read now, also mere words."""

_NOTICE = ("<task-notification>", "<system-reminder>")
_OWN = "[memoryd]"
_PEOPLE = frozenset({"", "human", "typed", "queued", "user", "composer", "bridge", "sdk", "cli"})


@dataclass(frozen=True, slots=True)
class Turn:
    """A session since its last save was asked for."""

    running: bool = False
    prompt_id: str = ""
    """Of the turn that runs, or ran last; a prompt queued meanwhile carries the same one."""
    prompted: bool = False
    """A person's prompt came."""
    tools: bool = False
    """A tool ran in the main session."""
    unread: bool = False
    """A turn ended that nobody's prompt started and that only answered in words."""
    asked_for: str = ""
    """The prompt id of the last turn that asked."""
    own: bool = False
    """All that was asked here came from memoryd itself: a fork that kept its hooks."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A save is wanted; `sure` where a prompt or a tool was seen."""

    reason: Reason
    sure: bool


def started(turn: Turn, source: str) -> tuple[Turn, Ask | None]:
    """SessionStart. A turn that still runs, but for a compaction inside it, was killed."""
    if source == "compact" or not turn.running:
        return turn, None
    return _asking(turn, "interrupted")


def prompted(turn: Turn, prompt_id: str, prompt: str, source: str = "") -> tuple[Turn, Ask | None]:
    """UserPromptSubmit. A running turn with another prompt id was interrupted: Esc fires nothing."""
    ask = None
    own = prompt.startswith(_OWN) and (turn.own or turn == Turn())
    if turn.running and prompt_id != turn.prompt_id:
        turn, ask = _asking(turn, "interrupted")
    return (
        replace(
            turn,
            running=True,
            prompt_id=prompt_id,
            prompted=turn.prompted or is_persons(prompt, source),
            own=own,
        ),
        None if turn.own else ask,
    )


def tools_ran(turn: Turn, prompt_id: str = "") -> Turn:
    """PostToolBatch in the main session. Of an unknown turn: it began without a prompt's event."""
    if prompt_id and prompt_id != turn.prompt_id:
        return replace(turn, running=True, prompt_id=prompt_id, tools=True)
    return turn if turn.tools else replace(turn, tools=True)


def ended(turn: Turn, prompt_id: str) -> tuple[Turn, Ask | None]:
    """Stop: asks where there is something to read, or where only the transcript can tell."""
    turn = replace(turn, running=False)
    if turn.own:
        return turn, None
    if turn.prompted or turn.tools:
        return _asking(replace(turn, prompt_id=prompt_id), "answer")
    if prompt_id and prompt_id == turn.asked_for:
        return turn, None  # the same turn again: a hook of somebody's made it go on, in words
    return replace(turn, prompt_id=prompt_id, asked_for=prompt_id, unread=True), Ask(
        "answer", sure=False
    )


def failed(turn: Turn) -> Turn:
    """StopFailure: nothing is asked; what the person said counts for the next turn."""
    return replace(turn, running=False)


def over(turn: Turn, reason: Reason) -> tuple[Turn, Ask | None]:
    """SessionEnd, a process that is gone, or a long silence: what was left unread is asked for."""
    if turn.own or not (turn.running or turn.unread):
        return replace(turn, running=False), None
    if reason == "idle" and turn.running:
        # interrupted, or at work on something long: its end is still to come
        sure = turn.prompted or turn.tools
        return replace(turn, prompted=False, tools=False), Ask(reason, sure=sure)
    return _asking(replace(turn, running=False), reason)


def is_persons(prompt: str, source: str = "") -> bool:
    """Whether a prompt may be a person's; a scheduled one can't be told apart here."""
    return source in _PEOPLE and not prompt.lstrip().startswith(_NOTICE)


def worth_reading(reason: Reason, *, sure: bool, prompts: int, tools: int, news: bool) -> bool:
    """Whether a save has something to read, by what the transcript holds since the last one.

    `prompts` are a person's, `tools` the main session's; `news`: there is anything at all. A transcript
    that holds nothing new yet leaves it to the events, but after a silence: there it is written.
    """
    if reason == "idle":
        return news
    if reason in FINAL_REASONS:
        return news or sure
    return prompts > 0 or tools > 0 or (sure and not news)


def _asking(turn: Turn, reason: Reason) -> tuple[Turn, Ask]:
    sure = turn.prompted or turn.tools
    asked = replace(turn, running=False, prompted=False, tools=False, unread=False)
    return replace(asked, asked_for=turn.prompt_id), Ask(reason, sure=sure)

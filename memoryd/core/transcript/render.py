"""The canonical rendering: the one text form in which a conversation is sent to a model.

Append-only: a turn's text follows from that turn alone, and a turn that has ended never changes. So the
rendering of a longer transcript starts with that of a shorter one, byte for byte, where both were taken
at turn ends, on one branch, with no compaction between and with the same mask.

A label stands at a line's start, and every further line of a text is indented: no text in a conversation
can forge a label, whatever it says and however it separates lines. Masking is the caller's function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from memoryd.core.transcript.rows import Media, Text, ToolCall, ToolResult
from memoryd.core.transcript.texts import MESSAGE_LIMIT, clean, clip
from memoryd.core.transcript.who import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memoryd.core.transcript.conversation import Conversation, Message, Turn
    from memoryd.core.transcript.rows import Block
    from memoryd.core.transcript.who import Who

_LABELS: dict[Who, str] = {
    "assistant": "ASSISTANT",
    "human": "USER",
    "sdk": "USER",
    "notice": "NOTICE",
    "scheduled": "SCHEDULED PROMPT",
    "other": "PROMPT OF A PROGRAM",
    "command": "COMMAND",
    "output": "OUTPUT",
    "tool": "RESULT",
    "summary": "SUMMARY OF THE CONVERSATION BEFORE",
    "interrupt": "INTERRUPTED",
    "meta": "NOTE",
}


def render(
    conversation: Conversation,
    *,
    mask: Callable[[str], str],
    last_answer: str = "",
    prompt: str = "",
) -> tuple[str, ...]:
    """One text per turn, each ending with a newline; joined they are the conversation.

    `last_answer` is the model's last message as an event has it, `prompt` that event's prompt id: it is
    added where the transcript does not hold it yet, in the form in which its row will be rendered.
    `mask` gets each text alone, cleaned of control characters, before it is indented.
    """
    texts = [_turn_text(turn, mask) for turn in conversation.turns]
    if not holds(conversation, last_answer, prompt):
        answer = _line("ASSISTANT", clip(last_answer.strip(), MESSAGE_LIMIT), mask)
        texts[-1:] = ["".join((*texts[-1:], answer))]
    return tuple(texts)


def holds(conversation: Conversation, last_answer: str, prompt: str = "") -> bool:
    """Whether nothing is missing: the answer to the turn of `prompt` is in the conversation.

    The host writes the last answer up to half a second after it told of it. Without `prompt`, an answer
    equal to that of the turn before is taken for that one's, since a queued prompt may already have
    started the next turn: to put an answer under a prompt that it did not answer would be worse than to
    send it with the next reading.
    """
    answer = clean(clip(last_answer.strip(), MESSAGE_LIMIT)).strip()
    if not answer or not conversation.turns:
        return not answer
    last = conversation.turns[-1]
    if prompt and last.prompt and last.prompt != prompt:
        return True
    asked_for = conversation.turns[-1:] if prompt and last.prompt else conversation.turns[-2:]
    return any(_final_answer(turn) == answer for turn in asked_for)


def _final_answer(turn: Turn) -> str:
    """The text with which the turn ends; empty where it ends with anything else."""
    message = turn.messages[-1]
    block = message.blocks[-1] if message.blocks else None
    return (
        clean(block.text).strip()
        if isinstance(block, Text) and message.author == "assistant"
        else ""
    )


def _turn_text(turn: Turn, mask: Callable[[str], str]) -> str:
    results = {
        block.id: block
        for message in turn.messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    lines: list[str] = []
    for message in turn.messages:
        if message.author in ("assistant", "tool"):
            for block in message.blocks:
                lines += (_line(label, text, mask) for label, text in _steps(block, results))
        else:
            lines.append(_line(_LABELS[message.author], _words(message), mask))
    return "".join(lines)


def _steps(block: Block, results: dict[str, ToolResult]) -> Iterator[tuple[str, str]]:
    """Label and text of a block of the model or a tool; a result follows its call and is used up."""
    match block:
        case Text(text):
            if clean(text).strip():
                yield _LABELS["assistant"], text
        case ToolCall(id, name, given):
            yield f"TOOL {' '.join(clean(name).split())}", given
            if (result := results.pop(id, None)) is not None:
                yield _result_label(result), result.text
        case ToolResult(id):
            if (result := results.pop(id, None)) is not None:
                yield _result_label(result), result.text
        case Media():
            yield _LABELS["assistant"], _mark(block)
        case _:
            assert_never(block)


def _words(message: Message) -> str:
    texts = [
        spoken(block.text) if isinstance(block, Text) else _mark(block)
        for block in message.blocks
        if isinstance(block, Text | Media)
    ]
    return "\n".join(texts)


def _result_label(result: ToolResult) -> str:
    return "ERROR" if result.error else "RESULT"


def _mark(media: Media) -> str:
    return f"[{media.kind} {media.form}]" if media.form else f"[{media.kind}]"


def _line(label: str, text: str, mask: Callable[[str], str]) -> str:
    first, *further = mask(clean(text)).strip().split("\n")
    indented = (f"  {line}" if line.strip() else "" for line in further)
    return "\n".join((f"{label}: {first}", *indented, ""))

"""The canonical rendering: the one text form in which a conversation is sent to a model.

Append-only: a turn's text follows from that turn alone, and a turn that has ended never changes. So the
rendering of a longer transcript starts with that of a shorter one, byte for byte, where both were taken
at turn ends, on one branch, with no compaction between and with the same mask.

A label stands at a line's start, and every further line of a text is indented: no text in a conversation
can forge a label, whatever it says and however it separates lines. Masking is the caller's function.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, assert_never

from memoryd.core.transcript.rows import Media, Text, ToolCall, ToolResult
from memoryd.core.transcript.texts import INPUT_LIMIT, MESSAGE_LIMIT, clean, clip
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

_LONG_ANSWER = 2_000
"""Characters at the end of a longer answer that tell it from others."""


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
    if last_answer and not holds(conversation, last_answer, prompt, mask=mask):
        answer = _line("ASSISTANT", clip(last_answer.strip(), MESSAGE_LIMIT), mask)
        texts[-1:] = ["".join((*texts[-1:], answer))]
    return tuple(texts)


def holds(
    conversation: Conversation,
    last_answer: str,
    prompt: str = "",
    *,
    mask: Callable[[str], str] = str,
) -> bool:
    """Whether nothing is missing: the answer to the turn of `prompt` is in the conversation.

    The host writes the last answer up to half a second after it told of it. `last_answer` may have been
    masked by `mask` already. Without `prompt`, an answer equal to that of the turn before is taken for
    that one's, since a queued prompt may already have started the next turn: to put an answer under a
    prompt that it did not answer would be worse than to send it with the next reading.
    """
    answer = mask(clean(clip(last_answer.strip(), MESSAGE_LIMIT))).strip()
    if not answer or not conversation.turns:
        return not answer
    last = conversation.turns[-1]
    if prompt and last.prompt and last.prompt != prompt:
        return True
    asked_for = conversation.turns[-1:] if prompt and last.prompt else conversation.turns[-2:]
    return any(_same(_final_answer(turn, mask), answer) for turn in asked_for)


def _final_answer(turn: Turn, mask: Callable[[str], str]) -> str:
    """The text with which the turn ends; empty where it ends with anything else."""
    message = turn.messages[-1]
    block = message.blocks[-1] if message.blocks else None
    if message.author != "assistant" or not isinstance(block, Text):
        return ""
    return mask(clean(block.text)).strip()


def _same(said: str, answer: str) -> bool:
    """Whether both are one text; of a long one the end has to do: each side may have cut it."""
    return said == answer or (
        len(answer) > _LONG_ANSWER and said[-_LONG_ANSWER:] == answer[-_LONG_ANSWER:]
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
                steps = _steps(block, _LABELS[message.author], results)
                lines += (_line(label, text, mask) for label, text in steps)
        else:
            lines.append(_line(_LABELS[message.author], _words(message), mask))
    return "".join(lines)


def _steps(block: Block, author: str, results: dict[str, ToolResult]) -> Iterator[tuple[str, str]]:
    """Label and text of a block of the model or a tool; a result follows its call and is used up."""
    match block:
        case Text(text):
            if clean(text).strip():
                yield author, text
        case ToolCall(id, name, given):
            yield f"TOOL {' '.join(clean(name).split())}", _spelt_input(given)
            if (result := results.pop(id, None)) is not None:
                yield _result_label(result), result.text
        case ToolResult(id):
            if (result := results.pop(id, None)) is not None:
                yield _result_label(result), result.text
        case Media():
            yield author, _mark(block)
        case _:
            assert_never(block)


def _spelt_input(given: str) -> str:
    """The fields of a call's input as `name: value`, texts as they are: escapes would hide secrets."""
    try:
        values = json.loads(given)
    except (ValueError, RecursionError):
        return clip(given, INPUT_LIMIT)
    if not isinstance(values, dict):
        return clip(_spelt(values), INPUT_LIMIT)
    lines = (f"{name}: {clip(_spelt(value), INPUT_LIMIT)}" for name, value in values.items())
    return clip("\n".join(lines), INPUT_LIMIT)


def _spelt(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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

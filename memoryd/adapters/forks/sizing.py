"""How much of a conversation goes into a digest: sized before it is sent.

Owns the estimate, the cut from the oldest end, and that consecutive saves share a start, without which
no prompt cache can be read. Pure: texts in, texts out.
"""

from __future__ import annotations

from dataclasses import dataclass

CHARACTERS_PER_TOKEN = 3
"""Fewer than most text has (about 4): code, JSON and other scripts have fewer, and too long costs more
than a little too short."""

KEPT_AFTER_A_CUT = 0.6
"""Part of the limit that is left when the start moves: the next saves then grow into the rest and
share the new start, so that it moves in coarse steps."""

LEFT_OUT = "[The conversation starts earlier. Its oldest part is left out here.]"
"""Stands before a conversation that was cut; without numbers, so that it never differs."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What is sent of a conversation, its oldest text first."""

    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Sized({len(self.texts)} texts, {self.characters} characters)"

    @property
    def characters(self) -> int:
        return sum(map(len, self.texts))


def size(conversation: tuple[str, ...], tokens: int, *, halved: bool) -> Sized:
    """At most `tokens` of the conversation's end by estimate; at least its last text, itself cut.

    `halved`: at most half of what would have been sent otherwise. Blank texts, which the API refuses,
    are dropped.
    """
    texts = tuple(text for text in conversation if text.strip())
    fitting = _cut(texts, tokens * CHARACTERS_PER_TOKEN)
    if halved:
        fitting = _cut(texts, fitting.characters // 2)
    return fitting


def _cut(texts: tuple[str, ...], limit: int) -> Sized:
    start = _start(texts, limit)
    if not start:
        return Sized(_short_enough(texts, limit))
    room = limit - len(LEFT_OUT)
    return Sized((LEFT_OUT, *_short_enough(texts[start:], room)))


def _start(texts: tuple[str, ...], limit: int) -> int:
    """Where to begin. Follows from the texts before alone, so that more of them move it seldom."""
    start, held = 0, 0
    for number, text in enumerate(texts):
        held += len(text)
        if held <= limit - (len(LEFT_OUT) if start else 0):
            continue
        while start < number and held > limit * KEPT_AFTER_A_CUT:
            held -= len(texts[start])
            start += 1
    return start


def _short_enough(texts: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """The texts, the only one cut in its middle where it is longer than `limit`."""
    if len(texts) != 1 or len(texts[0]) <= limit:
        return texts
    # A turn opens with what was asked and ends with what came out: the middle is tools at work.
    mark = "\n[… cut here …]\n"
    room = max(limit - len(mark), 0)
    front = room // 4
    back = room - front
    return (texts[0][:front] + mark + texts[0][len(texts[0]) - back :],)

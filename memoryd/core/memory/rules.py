"""What one line of memory may be: bullet form, duplicates, refused text, the user's own words.

Pure checks of a single text; applying a whole reply is `edit`'s.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from memoryd.core import redact
from memoryd.core.memory.document import BULLET_LIMIT
from memoryd.core.text import cut, fold, hazard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUOTE_MINIMUM = 12
"""Characters of a quote, unless it is a whole message."""

TAG_NAMED = 40
"""Characters of a tag that a sentence names: some of the host's have names of any length."""

OWN_MARK = "[memoryd]"
"""How every message of ours in a conversation starts."""

DATA_TAG = "memoryd-data"
"""The tag around text that is data for the fork."""

BLOCK_MARK = "[PROJECT MEMORY"
"""How the block that a session loads starts."""

_SPACED_MARKER = re.compile(r"[-*](?:\s+|\Z)")
_GLUED_MARKER = re.compile(r"-(?=[^\W\d_])")
_STRUCTURE = re.compile(r"(?:(?:[-*+]|\d+[.)])\s+|>\s?)*(#{1,6}(?=\s|\Z)|`{3}|~{3})")
_TAG = re.compile(
    r"</?(?:system-reminder|task-notification|tool_use_error|tools-used-before-summary|"
    r"new-diagnostics|persisted-output|user-memory-input|user-prompt-submit-hook|"
    r"(?:command|local-command|bash|ide|memoryd)[-_][a-z_-]+|function_(?:calls|results)|antml:[a-z_]+)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\*{1,3}|_{1,3}")
_NEGATION = re.compile(
    r"no|not|never|none|nothing|neither|nor|cannot|\w+n't|without|avoid|stop|forbid|refuse"
    r"|nie|niemals|nicht|kein(?:e[nmr]?)?|ohne|ne|pas|jamais|sans|nunca|jamás|sin"
)
_JOINT = re.compile(r"and|but|because|since|then|und|aber|weil|et|mais|car|y|pero|porque")
"""A word that begins a clause, to which a negation before it does not reach."""

_CLAUSE_ENDS = (",", ";", ":", ".", "!", "?", ")", "\u2013", "—")
_WORD_EDGES = ".,;:!?()[]{}\"'`*_“”„…"


class Word(NamedTuple):
    """A word and the number of its clause in the line."""

    text: str
    clause: int

    def __repr__(self) -> str:
        return f"Word({len(self.text)} characters, {self.clause})"


def content(line: str) -> str:
    """A line without indentation, one `-` or `*` marker with space behind it, and trailing space."""
    text = line.strip()
    found = _SPACED_MARKER.match(text)
    return text[found.end() :] if found else text


def bullet(text: str) -> str:
    """`text` in bullet form, starting with `- `; empty where nothing stands behind the marker."""
    text = text.strip()
    found = _SPACED_MARKER.match(text) or _GLUED_MARKER.match(text)
    body = text[found.end() :] if found else text
    return f"- {body}" if body else ""


def key(line: str) -> str:
    """What makes two lines duplicates: case, spacing, marker, final dot and emphasis do not count."""
    bare = line[2:] if line.startswith("- ") else bullet(line)[2:]
    return _without_emphasis(fold(bare)).removesuffix(".").rstrip()


def text_fault(line: str) -> str:
    """Why a bullet may not be written, or an empty string; `secret_fault` apart."""
    if not line:
        return "empty"
    if len(line) > BULLET_LIMIT:
        return f"{len(line)} characters, a bullet has at most {BULLET_LIMIT}"
    if structure := _STRUCTURE.match(line[2:]):
        return "starts with a heading" if structure[1][0] == "#" else "starts with a code fence"
    return character_fault(line) or mark_fault(line)


def character_fault(text: str, *, layout: bool = False) -> str:
    """Why the characters of a text may not be written; with `layout`, newline and tab may."""
    found = hazard(text, layout=layout)
    return f"holds the character {found}" if found else ""


def mark_fault(text: str) -> str:
    """Why a text could pass for the host's or our own words, or an empty string."""
    if found := _TAG.search(text):
        return f"holds the tag {cut(found[0], TAG_NAMED)}>"
    folded = text.casefold()
    for mark in (OWN_MARK, BLOCK_MARK):
        if mark.casefold() in folded:
            return f"holds our own mark {mark}"
    return ""


def secret_fault(text: str, secrets: Iterable[str] = ()) -> str:
    """Which secret a text holds, or an empty string. `secrets` are exact values."""
    found = redact.find(text, secrets)
    return f"holds a secret ({found[0].kind})" if found else ""


def quoted(because: str, typed: Sequence[str]) -> bool:
    """Whether the user typed `because`: a part of a message of 12 characters, or a whole message.

    `typed` are the messages, folded.
    """
    quote = fold(because)
    if len(quote) < QUOTE_MINIMUM:
        return bool(quote) and quote in typed
    return any(quote in message for message in typed)


def words(line: str) -> list[Word]:
    """The words of a line, folded, without punctuation at their edges."""
    found: list[Word] = []
    clause = 0
    for token in fold(content(line)).replace("\u2019", "'").split(" "):
        word = token.strip(_WORD_EDGES)
        clause += token.startswith("(") or bool(_JOINT.fullmatch(word))
        if word:
            found.append(Word(word, clause))
        clause += token.endswith(_CLAUSE_ENDS)
    return found


def shortens(part: Sequence[Word], whole: Sequence[Word]) -> bool:
    """Whether the words of `part` stand in `whole` in the same order, and mean no more than there.

    `Never push to main` has the words of `push to main`: a negation goes only with what it negates.
    """
    last = len(whole) - 1
    forward = _places(part, whole)
    backward = [last - at for at in _places(part[::-1], whole[::-1])][::-1]
    return any(
        places and _keeps_clauses(places, part, whole) and _keeps_negations(places, whole)
        for places in (forward, backward)
    )


def _places(part: Sequence[Word], whole: Sequence[Word]) -> list[int]:
    """Where in `whole` the words of `part` stand, each as early as can be; empty if they do not."""
    rest = enumerate(whole)
    places = [next((at for at, word in rest if word.text == wanted.text), None) for wanted in part]
    return [at for at in places if at is not None] if None not in places else []


def _keeps_clauses(places: Sequence[int], part: Sequence[Word], whole: Sequence[Word]) -> bool:
    """Whether no new sign parts two words: behind `Never.` the next save could take the rest."""
    return all(
        word.clause == after.clause or whole[at].clause != whole[then].clause
        for (word, at), (after, then) in pairwise(zip(part, places, strict=True))
    )


def _keeps_negations(places: Sequence[int], whole: Sequence[Word]) -> bool:
    """Whether each word that is kept has the negations before it in its clause."""
    kept = set(places)
    loose = [
        at for at, word in enumerate(whole) if at not in kept and _NEGATION.fullmatch(word.text)
    ]
    return not any(
        at < place and whole[at].clause == whole[place].clause for at in loose for place in places
    )


def _without_emphasis(text: str) -> str:
    """`text` without the pairs of `*` and `_` that Markdown takes for emphasis: in one pass."""
    if "*" not in text and "_" not in text:
        return text
    opened: dict[str, tuple[int, int]] = {}
    pairs: list[tuple[int, int]] = []
    for found in _EMPHASIS.finditer(text):
        mark, (start, end) = found[0], found.span()
        before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
        inner = mark[0] == "*"  # a `_` between letters belongs to a name
        if mark in opened and not before.isspace() and (inner or not after.isalnum()):
            pairs += (opened.pop(mark), (start, end))
        elif not after.isspace() and (inner or not before.isalnum()):
            opened[mark] = (start, end)
    kept, at = [], 0
    for start, end in sorted(pairs):
        kept.append(text[at:start])
        at = end
    return "".join((*kept, text[at:]))

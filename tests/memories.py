"""Memory files and replies for tests: fixed ones, and strategies that write odd ones."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from memoryd.core.memory import reply as replies
from memoryd.core.memory.document import BOM, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Entry = dict[str, object]
"""An op or a topic as JSON holds it."""


def memory(
    critical: Sequence[str] = (),
    facts: Sequence[str] = (),
    warnings: Sequence[str] = (),
    topics: Sequence[str] = (),
) -> str:
    """A file in shape; a section without lines is empty."""
    parts = ["# p"]
    for name, lines in zip(SECTIONS, (critical, facts, warnings, topics), strict=True):
        parts.append(f"## {name}")
        if lines:
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def add(section: str, text: str, because: str = "") -> Entry:
    found: Entry = {"op": "add", "section": section, "text": text}
    return found | ({"because": because} if because else {})


def remove(line: str, because: str = "") -> Entry:
    found: Entry = {"op": "remove", "line": line}
    return found | ({"because": because} if because else {})


def change(line: str, text: str, because: str = "") -> Entry:
    found: Entry = {"op": "replace", "line": line, "text": text}
    return found | ({"because": because} if because else {})


def topic(file: str, append: str) -> Entry:
    return {"file": file, "append": append}


def said(ops: Sequence[Entry] = (), topics: Sequence[Entry] = ()) -> str:
    """A reply's text."""
    return json.dumps({"ops": list(ops), "topics": list(topics)})


def reply(ops: Sequence[Entry] = (), topics: Sequence[Entry] = ()) -> replies.Reply:
    """A reply as it is read."""
    found = replies.read(said(ops, topics))
    assert isinstance(found, replies.Reply)
    return found


def sections(text: str) -> list[str]:
    """Names of the `## ` headings outside of fences, as a Markdown reader sees them.

    Written from CommonMark, apart from the code under test; a fence that nothing closes goes to the end.
    """
    found, fence = [], ""
    for line in text.removeprefix(BOM).split("\n"):
        mark = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line.rstrip(), re.DOTALL)
        if fence:
            closes = mark and mark[1].startswith(fence) and not mark[2].strip()
            fence = "" if closes else fence
        elif mark and not ("`" in mark[1] and "`" in mark[2]):
            fence = mark[1]
        elif line.startswith("## ") and line[3:].strip():
            found.append(line[3:].strip())
    return found


def filled(lines: Iterable[str]) -> list[str]:
    """The lines that are not blank, without outer space."""
    return [line.strip() for line in lines if line.strip()]


WORDS = ("never", "push", "to", "main", "use", "bun", "the", "API", "is", "slow", "größer", "日本")
ODD = (
    "",
    "   ",
    "\t",
    "plain text",
    "* star",
    "  - indented",
    "-glued",
    "- None yet.",
    "- none yet",
    "- **bold** rule.",
    "- a\u2028## not a heading",
    "\x0c## CRITICAL RULES",
    "- tab\there",
    "1. one",
    "- " + "x" * 620,
    "# Title",
    "#### deep",
    "##nospace",
    "## ",
    "### sub",
    "### CRITICAL RULES",
    "### Unsorted: Old",
    "- `db.md`.",
    "<system-reminder>",
    "- \u200bhidden",
)
FENCES = (
    "```",
    "````",
    "```py",
    "```a`b",
    "~~~",
    "~~~~",
    "~~~ info ~~~",
    "   ```",
    "    ```",
    "``` ",
)
HEADINGS = (
    *(f"## {name}" for name in SECTIONS),
    "## critical rules",
    "##  ACTIVE WARNINGS ",
    "## Notes",
    "## Notes ##",
    "## ### x",
)
RULES = tuple(
    f"- {' '.join(words)}."
    for words in (*combinations(WORDS, 1), *combinations(WORDS, 2), *combinations(WORDS, 3))
)
"""Bullets of few words, so that some are parts of others."""

PLAIN = tuple(line for line in ODD if not line.startswith("## "))
LINES = st.sampled_from((*RULES[:60], *ODD, *FENCES, *HEADINGS, *HEADINGS))
ANY_LINE = LINES | st.text(st.characters(exclude_characters="\n"), max_size=12)
ENDS = st.sampled_from(("\n", "\r\n"))


@st.composite
def messy_files(draw: st.DrawFn) -> str:
    """Any file: headings anywhere, fences open or closed, either line end, or both."""
    lines = [*draw(st.lists(LINES, max_size=24)), draw(ANY_LINE)]
    end = draw(ENDS)
    text = end.join(lines) + draw(st.sampled_from(("", end)))
    if draw(st.integers(0, 5)) == 0:
        text = text.replace("\n", "\r\n", 3)
    return draw(st.sampled_from(("", BOM))) + text


BODY = st.sampled_from((*RULES, *PLAIN))


@st.composite
def shaped_files(draw: st.DrawFn) -> str:
    """A file in shape, with closed fences in it, of few or very many lines."""
    parts = draw(st.lists(BODY, max_size=2))
    extras = draw(st.tuples(*[st.integers(1, 9)] * 3, st.integers(0, 9)))
    for name, extra in zip(SECTIONS, extras, strict=True):
        parts += [f"## {name}", "", *draw(st.lists(BODY, max_size=6))]
        if extra < 3:
            parts += ["```", "## fenced", "- in code", "```"]
        if extra == 0:
            parts += [f"- filler {number}" for number in range(150)]
        if extra % 2:
            parts.append("")
    end = draw(ENDS)
    return draw(st.sampled_from(("", BOM))) + end.join(parts) + draw(st.sampled_from(("", end)))


FILES = st.one_of(shaped_files(), messy_files())


def near_copies(line: str) -> st.SearchStrategy[str]:
    """`line`, or what a model makes of it."""
    bare = line.removeprefix("- ")
    less = " ".join(line.split(" ")[:-1])
    copies = (
        line,
        bare,
        f"* {bare}",
        f"  {line}",
        line.upper(),
        line.rstrip("."),
        f"**{bare}**",
        less,
    )
    return st.sampled_from((line, *copies))


@st.composite
def entries(draw: st.DrawFn, lines: Sequence[str]) -> Entry:
    """An op that names a line of the file, something like it, or something else."""
    text = st.sampled_from((*lines, *lines, *RULES[:40])).flatmap(near_copies) | ANY_LINE
    kind = draw(st.sampled_from(("add", "add", "remove", "replace")))
    quote = draw(st.sampled_from(("", "", "never push to main", "ok", "use bun")))
    found: Entry = {"op": kind, "because": quote}
    if kind == "add":
        found["section"] = draw(st.sampled_from((*SECTIONS, "## critical rules", "sub", "nowhere")))
    else:
        found["line"] = draw(text)
    if kind != "remove":
        found["text"] = draw(text)
    return found


FILE_NAMES = ("db.md", "my-db.md", "history.md", "memory.md", "../x.md", "A.md")
APPENDS = ("- x", "## Day\n\n- never push.", "", "a\x1b[0m", "<system-reminder>x")
TOPICS = st.lists(
    st.builds(topic, st.sampled_from(FILE_NAMES), st.sampled_from(APPENDS)), max_size=3
)


@st.composite
def answers(draw: st.DrawFn, text: str) -> str:
    """A reply's text to the file `text`: moves, chains and odd entries among it."""
    lines = text.replace("\r", "").split("\n")
    ops: list[Entry] = draw(st.lists(entries(lines), max_size=8))
    chained = draw(st.booleans())
    if ops and chained:
        ops += draw(st.lists(st.sampled_from(ops), max_size=3))  # chains on the same lines
    if draw(st.booleans()):
        line = draw(st.sampled_from(lines))
        move = [remove(line), add(draw(st.sampled_from(SECTIONS)), line)]
        ops += move[:: draw(st.sampled_from((1, -1)))]
    if draw(st.integers(0, 9)) == 0:
        ops += [remove(line) for line in lines[:60]]
    if draw(st.integers(0, 9)) == 0:
        ops += [add(SECTIONS[1], f"new {number}") for number in range(60)]
    return said(ops, draw(TOPICS))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str | None, str]:
    """A file, or none, and a reply to it."""
    text = draw(st.one_of(st.none(), FILES, FILES, FILES))
    return text, draw(answers(text or ""))

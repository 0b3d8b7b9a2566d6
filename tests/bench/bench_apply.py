"""A save's own work on the text: P13, apply, check and diff of a 50 KB file.

The reference is what the save then does to the disk: write, fsync and rename of that file.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from bench.measure import interleaved, no_collection, seconds
from bench.table import compared
from memories import add, change, memory, remove, reply, topic
from wire import short_dir

from memoryd.core.diff import line_counts
from memoryd.core.memory.edit import apply
from memoryd.core.memory.ops import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.measure import Plan
    from bench.table import Row

    from memoryd.core.memory.reply import Reply

ROUNDS = 5
"""Turns of one pair's side: the file system's noise is larger than the work."""

FACT = (
    "The {} service reads its settings from `config/{}.toml` and must be restarted after a change, "
)
REASON = "because the values are cached at start and the watcher of the old set-up was removed. "


def long_file() -> str:
    """A file in shape of just under 50,000 characters: below both hard caps."""
    rules = [f"- Never restart service {number}: {REASON}" for number in range(25)]
    facts = [f"- {FACT.format(number, number)}{REASON * 3}" for number in range(124)]
    warnings = [f"- Trap {number}: {REASON}" for number in range(20)]
    return memory(rules, facts, warnings, ["- `db.md`.", "- `history.md`."])


def usual_reply(text: str) -> Reply:
    """Ten ops and a topic, as a save has them: adds, rewordings, removes, a move, a copy of a line."""
    lines = [line for line in text.split("\n") if line.startswith("- The ")]
    facts, warnings = "Architecture & Config Facts", "Active Warnings"
    return reply(
        [
            add("CRITICAL RULES", "Use bun for all scripts.", "please use bun for all scripts"),
            add(facts, "The importer needs 2 GB of memory for the monthly file."),
            add(facts, "`make check` runs the linters and the unit tests, not the browser tests."),
            add(warnings, "The staging database is read-only until the migration is done."),
            add(facts, lines[7]),
            change(lines[20], "The 20 service reads its settings from the environment."),
            change(lines[90], "The 90 service has no settings."),
            remove(lines[50]),
            remove(lines[100]),
            add(warnings, lines[100]),
        ],
        [topic("history.md", f"## Settings\n\n{lines[50]}\n- Moved to the environment.")],
    )


def p13(plan: Plan) -> Iterator[Row]:
    """Apply, check and diff, beside what the save then does to the disk."""
    text = long_file()
    answer = usual_reply(text)
    terms = Terms("p", ("now please use bun for all scripts, not npm", "and what about the traps?"))

    def save() -> None:
        line_counts(text, apply(text, answer, terms).text)

    with short_dir() as folder, no_collection():
        write = partial(_write, folder / "MEMORY.md", text.encode())
        found = interleaved(
            partial(seconds, partial(_rounds, save)),
            partial(seconds, partial(_rounds, write)),
            pairs=plan.pairs,
        )
    yield compared(
        "P13",
        f"apply, check, diff of {len(text):,} characters",
        found.of(lambda spent: spent / ROUNDS),
        goal=1.5,
        against="write, fsync, rename of it",
    )


def _rounds(work: Callable[[], object]) -> None:
    for _ in range(ROUNDS):
        work()


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


FIGURES = {"P13": p13}

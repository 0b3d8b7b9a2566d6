"""The page of the status line: every form of it, made by the code that makes the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.pages.markdown import block, code, table
from docs.pages.markdown import page as whole
from memoryd.core import failure, statusline
from memoryd.core.memory import report
from memoryd.core.memory.edit import Applied
from memoryd.core.memory.reply import Refusal, TopicAppend, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENING = """\
One line for the project of a session: what the last save did, or what goes on now, and since when
(local time). `memoryctl statusline` prints it, `memoryctl` shows it beside the project's name, and
Claude Code shows it below its prompt once this entry stands in its `settings.json`, and looks for a
new one after each turn and every five seconds:"""

SETTINGS = "memoryctl statusline --settings"

COLOURS = """\
What was written is green; what was skipped, refused, retired or held is yellow; an error is red;
the rest is faint. `NO_COLOR` and anything that is no terminal get plain text. There is no line as
long as nothing happened, and none after a reply that could not be read: that turn is saved with the
next one."""

EVENTS = """\
Behind the status line stands one event for each save that changed or left out something. It is
shown to the person (`memoryctl`, `memoryctl log`, `memoryctl show`) and never sent to a model. A
line that it names is cut to 60 characters, a retired line never; `memoryctl` cuts the whole to 119."""

CLOCK = "09:15"

HISTORY = TopicAppend("history.md", "- Done.")
TOPICS = tuple(
    TopicAppend(f"{stem}.md", "- Done.") for stem in ("build", "db", "api", "ui", "tests")
)
NO_QUOTE = Refusal(
    "Deploy on Fridays.", "touches CRITICAL RULES without words that the user typed", "add"
)
RULE = "- Deploy by hand."
GONE = "- The port is 80."

FORMS: tuple[tuple[str, str], ...] = (
    (report.SAVING, "a save is running"),
    (report.status(Applied("changed", "", added=4, removed=2)), "4 bullets added, 2 lines removed"),
    (
        report.status(Applied("changed", "", topics=(HISTORY,), added=1, replaced=2)),
        "1 added, 2 replaced, something appended to history.md",
    ),
    (
        report.status(Applied("changed", "", topics=TOPICS, added=1)),
        "topic files without `.md`, at most three by name",
    ),
    (report.status(Applied("no_change", "")), "there was nothing to remember"),
    (
        report.status(Applied("no_change", "", skipped=(GONE,) * 3)),
        "changes named lines that are not in the file",
    ),
    (
        report.status(Applied("changed", "", added=1, refused=(NO_QUOTE,) * 2)),
        "2 changes may not be made",
    ),
    (
        report.status(Applied("changed", "", added=1, duplicates=("- Twice.",))),
        "something to add stands there already",
    ),
    (
        report.status(Applied("changed", "", topics=(HISTORY,), removed=1, retired=(RULE,))),
        "a line left CRITICAL RULES and is kept in history.md",
    ),
    (
        report.status(Applied("held", "", faults=("8 of 10 bullets would be removed",))),
        "a save that would remove too much; nothing was written",
    ),
    (
        report.status(Applied("not_written", "", faults=("205 lines, the limit is under 200",))),
        "the result would break a limit; nothing was written",
    ),
    (
        report.error(failure.sentence("transient", 529, "overloaded_error")),
        "the model could not be asked; the turn stays owed",
    ),
    (
        report.error("memory not loaded: cannot read MEMORY.md: not UTF-8 at byte 25"),
        "the last session started without its memory",
    ),
    ("paused", "`memoryctl pause`"),
    ("off", "`memoryctl off`"),
)

SAVES: tuple[Applied, ...] = (
    Applied(
        "changed",
        "",
        topics=(HISTORY,),
        added=4,
        removed=2,
        replaced=3,
        skipped=(GONE,),
        refused=(NO_QUOTE,),
        retired=(RULE,),
    ),
    Applied("changed", "", added=4, created=True),
    Applied("changed", "", topics=(TopicAppend("db.md", "- Done."),)),
    Applied("no_change", "", skipped=(GONE,)),
    Applied("not_written", "", faults=("205 lines, the limit is under 200",)),
)


def page() -> str:
    """The page as Markdown."""
    source = "`memoryd/core/memory/report.py` and `memoryd/core/statusline.py`"
    return whole("Status line", source, _parts())


def _parts() -> Iterator[str]:
    yield OPENING
    yield block(SETTINGS, "sh")
    yield "## Forms"
    rows = ((code(statusline.line(text, CLOCK, colour=False)), what) for text, what in FORMS)
    yield table(("Line", "When"), rows)
    yield COLOURS
    yield "## Events"
    yield EVENTS
    yield block("\n".join(_events()))


def _events() -> Iterator[str]:
    for applied in SAVES:
        yield report.event(applied)
    yield report.event(Applied("changed", "", added=1), merged=True)
    yield report.REARRANGED
    yield report.unreadable_event(Unreadable("no JSON object"), 812)

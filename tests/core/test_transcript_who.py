"""Who wrote a user row, and what of it a person typed."""

from __future__ import annotations

import pytest

from memoryd.core.transcript import Marks, Who, typed_by, who_queued, who_wrote
from memoryd.core.transcript.who import spoken

LOCAL_COMMAND = "<command-name>/compact</command-name>\n<command-message>compact</command-message>"
PROMPT_COMMAND = (
    "<command-message>greet</command-message>\n<command-name>/greet</command-name>\n"
    "<command-args>Bob</command-args>"
)


@pytest.mark.parametrize(
    ("marks", "text", "who"),
    [
        (Marks(origin="human", prompt_source="typed"), "hello", "human"),
        (Marks(origin="human", prompt_source="queued"), "<task-notification>pasted", "human"),
        (Marks(origin="bridge"), "hello", "human"),
        (Marks(origin="composer"), "hello", "human"),
        (Marks(origin="human"), PROMPT_COMMAND, "human"),
        (Marks(origin="human", meta=True), "an expansion", "meta"),
        (Marks(origin="sdk"), "hello", "sdk"),
        (Marks(prompt_source="sdk", row_source="local"), "hello", "sdk"),
        (Marks(prompt_source="typed"), "hello", "human"),
        (Marks(row_source="local", turn_origin="sdk"), PROMPT_COMMAND, "sdk"),
        (Marks(origin="task-notification"), "<task-notification>\nx", "notice"),
        (Marks(), "<task-notification>\nx", "notice"),
        (Marks(origin="task-notification", subkind="scheduled-trigger"), "check", "scheduled"),
        (Marks(meta=True, scheduled=True), "check the build", "scheduled"),
        (Marks(origin="plugin"), "do it", "other"),
        (Marks(origin="peer"), "do it", "other"),
        (Marks(origin="channel"), "do it", "other"),
        (Marks(origin="something new"), "do it", "other"),
        (Marks(prompt_source="system"), "do it", "other"),
        (Marks(summary=True), "all before", "summary"),
        (Marks(row_source="harness"), "[Request interrupted by user]", "interrupt"),
        (Marks(), "[Request interrupted by user for tool use]", "interrupt"),
        (Marks(origin="human"), "[Request interrupted by user]", "human"),
        (Marks(row_source="local"), LOCAL_COMMAND, "command"),
        (Marks(), "<local-command-stdout>x</local-command-stdout>", "output"),
        (Marks(row_source="local", turn_origin="human"), "<bash-stdout>x</bash-stdout>", "output"),
        (Marks(), "<local-command-caveat>x", "meta"),
        (Marks(), "<bash-input>ls</bash-input>", "command"),
        (Marks(meta=True, row_source="harness"), "<local-command-caveat>x", "meta"),
        (Marks(meta=True), "resume directly", "meta"),
        (Marks(), "<system-reminder>x</system-reminder>", "meta"),
        (Marks(row_source="harness"), "a text of the host", "meta"),
        (Marks(turn_origin="human"), "nobody says who", "meta"),
        (Marks(), "an older host's prompt", "human"),
        (Marks(), "  indented", "human"),
    ],
)
def test_who_wrote_a_row(marks: Marks, text: str, who: Who) -> None:
    assert who_wrote(marks, (text,)) == who


def test_what_the_editor_laid_before_a_prompt_does_not_hide_it() -> None:
    aside = "<ide_opened_file>a.py</ide_opened_file>"
    assert who_wrote(Marks(), (aside, "fix it")) == "human"
    assert who_wrote(Marks(), (aside,)) == "meta"
    assert who_wrote(Marks(), ()) == "human"


@pytest.mark.parametrize(
    ("marks", "mode", "human", "host", "who"),
    [
        (Marks(origin="human"), "prompt", True, False, "human"),
        (Marks(), "prompt", True, False, "human"),
        (Marks(), "prompt", False, True, "sdk"),
        (Marks(), "prompt", False, False, "other"),
        (Marks(origin="plugin"), "prompt", True, False, "other"),
        (Marks(origin="task-notification"), "task-notification", False, False, "notice"),
        (Marks(), "task-notification", False, False, "notice"),
        (Marks(not_typed=True), "prompt", True, False, "other"),
        (Marks(), "bash", True, False, "other"),
    ],
)
def test_who_queued_a_command(marks: Marks, mode: str, human: bool, host: bool, who: Who) -> None:  # noqa: FBT001
    assert who_queued(marks, mode, human=human, host=host) == who


@pytest.mark.parametrize(
    ("who", "marks", "texts", "typed"),
    [
        ("human", Marks(), ("  keep this \n",), "keep this"),
        ("sdk", Marks(), ("one", "two"), "one\ntwo"),
        ("human", Marks(), ("<system-reminder>x</system-reminder>", "mine"), "mine"),
        ("human", Marks(), ("<ide_opened_file>x</ide_opened_file>", "mine"), "mine"),
        ("human", Marks(), (PROMPT_COMMAND,), "/greet Bob"),
        ("human", Marks(not_typed=True), ("a program's",), ""),
        ("human", Marks(prompt_source="suggestion_accepted"), ("the model's",), ""),
        ("notice", Marks(), ("a task ended",), ""),
        ("other", Marks(), ("a plugin's",), ""),
        ("human", Marks(), ("a\u200bb\r\nc\u2028d\x1b[1m!",), "ab\nc\nd!"),
        ("human", Marks(), ("x" * 200_000,), "x" * 100_000),
    ],
)
def test_what_was_typed(who: Who, marks: Marks, texts: tuple[str, ...], typed: str) -> None:
    assert typed_by(who, marks, texts) == typed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LOCAL_COMMAND, "/compact"),
        (PROMPT_COMMAND, "/greet Bob"),
        ("<bash-input>ls -l</bash-input>", "!ls -l"),
        ("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>", "a"),
        ("<local-command-stdout>set</local-command-stdout>", "set"),
        ("words about <command-name>", "words about <command-name>"),
    ],
)
def test_a_command_is_shown_as_the_person_saw_it(text: str, shown: str) -> None:
    assert spoken(text) == shown

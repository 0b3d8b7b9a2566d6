from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import answers
import pytest
from processes import TAG, alive, new_tag
from shells import Typed

from memoryd.demo import play, stage
from memoryd.demo.hooks import Hooks
from memoryd.demo.play import DemoError
from memoryd.demo.recording import Event, Row, recorded, scripted_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

RULE = (
    "- Run the tests with `make check`, never with pytest directly:"
    " a plain run leaves the test database behind."
)


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> str:
    """Every process of the demo has it in its environment."""
    tag = new_tag()
    monkeypatch.setattr(stage, "PASSED_ON", (*stage.PASSED_ON, TAG))
    return tag


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo makes its folder."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


@pytest.fixture
def typed(folder: Path, tag: str) -> Typed:
    """Typed inside a coding session, whose key and gateway are nobody's business here."""
    env = {
        "HOME": str(folder / "nobody"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "CLAUDECODE": "1",
        "ANTHROPIC_API_KEY": "of-the-session",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "MEMORYD_DISABLE": "1",
        TAG: tag,
    }
    return Typed(env, now=answers.NOW)


@pytest.mark.e2e
class TestTheDemo:
    def test_tells_the_story_and_leaves_nothing(self, typed: Typed, folder: Path, tag: str) -> None:
        assert typed("demo") == 0
        assert not typed.err
        story = typed.out
        names = re.findall(r"^ *\d+\.\d  (\S+) ", story, re.MULTILINE)
        assert [name for name in names if name != "save"] == [
            *("plugin", "model", "daemon"),
            *("SessionStart", "UserPromptSubmit", *["PostToolBatch"] * 3, "Stop", "SessionEnd"),
            "SessionStart",
        ]
        assert names.index("Stop") < names.index("save") < names.index("SessionEnd")
        assert "memory: saving…" in story
        assert "MEMORY.md: created, 2 added; appended to history.md; refused: " in story
        assert re.search(r"memory: \+2 topic: history 1 refused · \d\d:\d\d\n", story)
        assert story.count(f"│  {RULE}\n") == 2  # the file, and what the next session gets
        assert re.search(r"[1-9][\d,]* tokens in, [1-9]\d* out\n", story)
        assert 'claude --plugin-dir "$(memoryctl plugin-dir)"' in story
        assert list(folder.iterdir()) == []
        assert alive(tag) == []

    def test_keeps_its_folder_when_asked(self, typed: Typed, folder: Path, tag: str) -> None:
        assert typed("demo", "--keep") == 0
        (kept,) = folder.iterdir()
        assert str(kept) in typed.out
        memory = kept / "home/.cli-tweaks/memory/tide/MEMORY.md"
        assert f"\n{RULE}\n" in memory.read_text()
        assert (kept / "home/.config/memoryd/key").stat().st_mode & 0o777 == 0o600
        assert alive(tag) == []

    def test_a_daemon_that_does_not_start_ends_it_with_a_sentence(
        self, typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stage.Stage, "configure", _configured_wrongly)
        assert typed("demo") == 1
        assert re.fullmatch(
            r"memoryctl: the demo failed: memoryd did not start: \S+:1: unknown setting `bogus`\n"
            r"try: memoryctl demo --keep\n",
            typed.err,
        )
        assert list(folder.iterdir()) == []

    def test_a_save_that_takes_too_long_ends_it_with_a_sentence(
        self, typed: Typed, folder: Path, tag: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(play, "SAVE_LIMIT", 0.0)
        assert typed("demo") == 1
        assert "the demo failed: no save within 0 s; the daemon's last word: " in typed.err
        assert list(folder.iterdir()) == []
        assert alive(tag) == []

    def test_a_reply_that_changes_nothing_ends_it_with_a_sentence(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(play, "scripted_reply", lambda: '{"ops": [], "topics": []}')
        assert typed("demo") == 1
        assert "the demo failed: the save ended with no_change" in typed.err


def _configured_wrongly(place: stage.Stage, _api_url: str) -> None:
    file = place.home / ".config/memoryd/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("bogus = 1\n")


class TestTheRecording:
    def test_is_a_turn_as_the_host_tells_it(self, tmp_path: Path) -> None:
        steps = list(recorded(home=tmp_path / "h", project=tmp_path / 'a "b"'))
        events = [step for step in steps if isinstance(step, Event)]
        assert [event.hook_event_name for event in events] == [
            *("SessionStart", "UserPromptSubmit", *["PostToolBatch"] * 3, "Stop", "SessionEnd")
        ]
        assert len({event.session_id for event in events}) == 1
        (transcript,) = {event.transcript_path for event in events}
        assert transcript.startswith(f"{tmp_path}/h/.claude/projects/-")
        assert transcript.endswith(f"{events[0].session_id}.jsonl")

    def test_the_last_answer_is_written_after_the_turn_s_end(self, tmp_path: Path) -> None:
        """As the host does in a terminal: a save has the answer from the event."""
        steps = list(recorded(home=tmp_path, project=tmp_path))
        names = [step.hook_event_name if isinstance(step, Event) else "row" for step in steps]
        stop = names.index("Stop")
        assert names[stop + 1] == "row"
        row = steps[stop + 1]
        assert isinstance(row, Row)
        assert b'"stop_reason":"end_turn"' in row.line

    def test_holds_no_place_of_the_machine_it_was_made_on(self) -> None:
        steps = recorded(home=Path("/home/user"), project=Path("/home/user/tide"))
        places = {
            found
            for step in steps
            for found in re.findall(rb'"(/[^"\s]+)', step.line)
            if not found.startswith(b"/home/user/")
        }
        assert places <= {b"/home/user"}

    def test_what_a_person_wrote_is_in_no_repr(self, tmp_path: Path) -> None:
        steps = list(recorded(home=tmp_path, project=tmp_path))
        assert "pytest" not in repr(steps)
        assert "pytest" in scripted_reply()


class TestTheHooks:
    def test_one_that_fails_is_counted(self, tmp_path: Path) -> None:
        (tmp_path / "hooks").mkdir()
        hook = '{"type":"command","command":"/bin/sh","args":["-c","%s"],"timeout":5}'
        hooks = ",".join(hook % code for code in ("exit 1", "cat >/dev/null"))
        (tmp_path / "hooks/hooks.json").write_text(
            f'{{"hooks":{{"Stop":[{{"hooks":[{hooks}]}}]}}}}'
        )
        found = Hooks(tmp_path, {}, tmp_path)
        ran = found.run(Event("Stop", "s1", "/t", line=b"{}"))
        assert (ran.hooks, ran.failed, ran.context) == (2, 1, "")


def test_an_error_of_the_demo_names_the_command_that_shows_more() -> None:
    assert str(DemoError("x")) == "the demo failed: x"
    assert DemoError("x").hint == "memoryctl demo --keep"


def test_what_to_type_next_works_where_it_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv" / "bin" / "memoryctl"), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert play._memoryctl() == ".venv/bin/memoryctl"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert play._memoryctl() == "memoryctl"

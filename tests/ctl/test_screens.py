from __future__ import annotations

import answers
import pytest

from memoryd.ctl import render, screens, words
from memoryd.ctl.screens import View
from memoryd.protocol import BackendStatus, ProjectStatus, RunRecord, Status, Usage

VIEW = View(answers.NOW, answers.HOME)


@pytest.fixture(autouse=True)
def _utc(utc: None) -> None:
    """As in the golden files."""


def shown(found: Status, view: View = VIEW) -> str:
    return render.plain(screens.status(found, view))


def project(**changed: object) -> ProjectStatus:
    found = answers.quiet_project()
    for name, value in changed.items():
        setattr(found, name, value)
    return found


class TestTheSentenceThatMatters:
    def test_all_is_well(self) -> None:
        assert shown(answers.calm()).startswith("memoryd works; nothing is owed\n\n")

    @pytest.mark.parametrize(
        ("owed", "running", "sentence"),
        [
            (2, None, "2 turns owed"),
            (0, "fork", "1 save running"),
            (1, "fork", "1 save running, 1 turn owed behind"),
        ],
    )
    def test_what_is_being_done(self, owed: int, running: str | None, sentence: str) -> None:
        found = answers.calm(project(owed=owed, running=running))
        assert shown(found).startswith(f"memoryd works; {sentence}\n")


class TestProjects:
    def test_failures_in_a_row_since_when_and_why(self) -> None:
        found = answers.calm(answers.quiet_project(), answers.failing_project())
        assert shown(found).startswith(
            "beta: 20 saves failed in a row since 11-29 10:46:"
            " the fork got an API error, 529 (overloaded)\n"
            "  try: memoryctl save --project beta\n"
        )

    def test_a_backend_that_asked_to_wait(self) -> None:
        found = answers.calm()
        found.backends = [BackendStatus(name="digest", works=True, waits_until=answers.NOW + 120)]
        assert "  digest   asked to wait until 09:02\n" in shown(found)

    def test_many_quiet_ones_get_a_row_each_where_somebody_reads(self) -> None:
        names = [f"p{number}" for number in range(8)]
        found = answers.calm(*(answers.quiet_project(name) for name in names))
        found.projects[5].owed = 1
        compact = shown(found, VIEW._replace(compact=True))
        assert compact.count("of 50,000 characters") == 2
        assert "\nproject  lines  last save\np1          38  memory: +4 -2" in compact
        for view in (VIEW, VIEW._replace(compact=True, verbose=True)):
            assert shown(found, view).count("of 50,000 characters") == 8

    def test_few_are_shown_whole(self) -> None:
        found = answers.calm(*(answers.quiet_project(name) for name in "abcde"))
        assert shown(found, VIEW._replace(compact=True)) == shown(found)

    def test_headless_sessions_that_are_not_like_others(self) -> None:
        assert "headless" not in shown(answers.calm(project()))
        assert "headless  `-p` and SDK sessions have no memory\n" in shown(
            answers.calm(project(headless="off"))
        )

    def test_a_directory_without_memory_yet(self) -> None:
        found = answers.calm(ProjectStatus(name="new", directory="/m/new"))
        assert shown(found).endswith(
            "\nnew  no save yet\n  file     no MEMORY.md yet\n  today    nothing\n"
        )

    @pytest.mark.parametrize(
        ("lines", "tone"), [(159, ""), (160, "warn"), (199, "warn"), (200, "bad")]
    )
    def test_the_caps_have_their_colours(self, lines: int, tone: str) -> None:
        assert screens._size(project(lines=lines))[0].tone == tone


class TestLog:
    def test_no_run(self) -> None:
        assert render.plain(screens.log([], VIEW)) == "no save yet\n"

    def test_a_run_that_failed_says_why(self) -> None:
        run = RunRecord(id="1", project="a", session="s", state="failed", failure="no response")
        assert render.plain(screens.log([run], VIEW)).rstrip().endswith("no response")


class TestRun:
    def test_that_has_not_ended(self) -> None:
        run = RunRecord(id="1", project="a", session="s", state="fork", started_at=answers.NOW)
        text = render.plain(screens.run(run, VIEW))
        assert "  times    started 09:00\n" in text
        assert "  tokens   no tokens\n" in text
        assert "  text     none → none\n" in text


class TestWords:
    @pytest.mark.parametrize(
        ("at", "shown"),
        [
            (answers.NOW, "09:00"),
            (answers.NOW - 86_400, "11-29 09:00"),
            (answers.NOW - 366 * 86_400, "2025-11-29 09:00"),
        ],
    )
    def test_clock(self, at: float, shown: str) -> None:
        assert words.clock(at, answers.NOW) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (0, "0.0 s"),
            (0.44, "0.4 s"),
            (5.99, "6.0 s"),
            (59.9, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (7500, "2 h 5 min"),
            (86_399, "23 h 59 min"),
            (90_000, "1 d 1 h"),
        ],
    )
    def test_age(self, seconds: float, shown: str) -> None:
        assert words.age(seconds) == shown

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (0, "0"),
            (9_999, "9,999"),
            (12_345, "12.3k"),
            (999_949, "999.9k"),
            (999_950, "1.0M"),
            (4_500_000, "4.5M"),
        ],
    )
    def test_short(self, value: int, shown: str) -> None:
        assert words.short(value) == shown

    @pytest.mark.parametrize(
        ("path", "shown"),
        [("/home/user", "~"), ("/home/user/x", "~/x"), ("/home/username", "/home/username")],
    )
    def test_tilde(self, path: str, shown: str) -> None:
        assert words.tilde(path, "/home/user") == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(600, "10 min"), (90, "90 s"), (7200, "2 h"), (86_400, "1 d"), (0.5, "500 ms")],
    )
    def test_duration(self, seconds: float, shown: str) -> None:
        assert words.duration(seconds) == shown

    def test_tokens(self) -> None:
        used = Usage(input=1, cache_read=2, cache_write=3, output=4)
        assert screens._tokens(used) == "6 tokens in (2 from the cache), 4 out"

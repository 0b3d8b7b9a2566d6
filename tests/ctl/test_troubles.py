from __future__ import annotations

import math

import answers
import pytest

from memoryd import __version__
from memoryd.core.failure import remedy
from memoryd.ctl import troubles
from memoryd.ctl.troubles import Trouble
from memoryd.protocol import BackendStatus, ProjectStatus, Status, Warned


@pytest.fixture(autouse=True)
def _utc(utc: None) -> None:
    """As in the golden files."""


def project(**changed: object) -> ProjectStatus:
    found = answers.quiet_project()
    for name, value in changed.items():
        setattr(found, name, value)
    return found


def found_in(found: Status) -> list[Trouble]:
    return troubles.troubles(found, answers.NOW)


def test_the_worst_comes_first() -> None:
    found = answers.calm(project(paused_until=math.inf, failures=1, failure="x"))
    found.warnings = [Warned(code="c", sentence="the config is wrong", hint="a b")]
    found.backends = [BackendStatus(name="digest", works=False, reason="no API key is set")]
    found.version = "0"
    assert [trouble.sentence.partition(":")[0] for trouble in found_in(found)] == [
        "the config is wrong",
        "no save can run, turns stay owed",
        "alpha",
        "alpha",
        "the daemon is version 0, this memoryctl " + __version__,
    ]


@pytest.mark.parametrize(
    ("changed", "trouble"),
    [
        (
            {"fault": "cannot read /m: no regular file", "fault_hint": "mv '/m' '/m.aside'"},
            Trouble("alpha: cannot read /m: no regular file", "mv '/m' '/m.aside'"),
        ),
        (
            {"loaded_lines": 3, "load_lines": 9},
            Trouble("alpha: only 3 of 9 lines of the memory reached the last session", "", "warn"),
        ),
        (
            {"paused_until": answers.NOW + 60},
            Trouble("alpha: paused until 09:01", "memoryctl resume --project alpha", "warn"),
        ),
        (
            {"paused_until": 1e11},
            Trouble("alpha: paused until resume", "memoryctl resume --project alpha", "warn"),
        ),
        (
            {"excluded": True, "off": True},
            Trouble("alpha: excluded by config.toml", "memoryctl config show", "warn"),
        ),
        (
            {"off": True},
            Trouble("alpha: memory is off", "memoryctl on --project alpha", "warn"),
        ),
    ],
)
def test_each_has_the_command_that_mends_it(changed: dict[str, object], trouble: Trouble) -> None:
    assert found_in(answers.calm(project(**changed))) == [trouble]


def test_a_pause_of_all_is_said_once() -> None:
    until = answers.NOW + 60
    found = answers.calm(project(paused_until=until), project(name="beta", paused_until=until))
    found.paused_until = until
    assert found_in(found) == [
        Trouble("all projects: paused until 09:01", "memoryctl resume", "warn")
    ]


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("the `claude` program is not there", "memoryctl config path"),
        (f"the fork got an API error, 401: {remedy('credentials', 'claude')}", "claude"),
    ],
)
def test_where_no_backend_works(reason: str, hint: str) -> None:
    found = answers.calm()
    found.backends = [
        BackendStatus(name="digest", works=False, reason="no API key is set"),
        BackendStatus(name="claude", works=False, reason=reason),
    ]
    assert [trouble.hint for trouble in found_in(found)] == [hint]


def test_a_name_that_begins_as_an_option_does() -> None:
    (found,) = found_in(answers.calm(project(name="-foo", off=True)))
    assert found.hint == "memoryctl on --project=-foo"


def test_while_a_save_runs_nobody_has_to_ask_for_one() -> None:
    failing = project(failures=2, failure="x", failing_since=answers.NOW)
    assert found_in(answers.calm(failing))[0].hint == "memoryctl save --project alpha"
    failing.running = "fork"
    assert found_in(answers.calm(failing))[0].hint == ""

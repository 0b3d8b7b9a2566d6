from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from wire import REPOSITORY

from memoryd.daemon import log
from memoryd.daemon.http import Request
from memoryd.errors import StorageError
from memoryd.protocol import OpRecord, RunRecord, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def unchanged_root() -> Iterator[None]:
    """The handlers of the root logger are the test runner's own again."""
    root, ours = logging.getLogger(), logging.getLogger(log.NAME)
    before, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = before
    ours.setLevel(level)


def started(stream: io.StringIO | None = None) -> io.StringIO:
    stream = stream or io.StringIO()
    log.start(stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def fail_with_words() -> None:
    try:
        dict[str, str]()["the user's prompt"]
    except KeyError as error:
        raise ExceptionGroup("the user's prompt", [ValueError("the user's prompt")]) from error


def test_a_line_is_an_object() -> None:
    stream = started()
    log.info("started", pid=17, path="/p")
    (line,) = lines(stream)
    stamp = line.pop("timestamp")
    assert line == {"event": "started", "level": "info", "pid": 17, "path": "/p"}
    assert stamp.endswith("Z")


def test_a_terminal_gets_words() -> None:
    stream = started(Terminal())
    log.warning("no room", error="EMFILE")
    assert "no room" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_no_control_character_reaches_a_terminal_or_a_file(stream: io.StringIO) -> None:
    log.start(stream)
    log.info("a\x1b[31m", path="b\x1b]0;x\x07\u202e\u200b", many=["\x9b1m", "\u2028"])
    text = stream.getvalue()
    for bad in ("\x1b]", "\x07", "\u202e", "\u200b", "\x9b", "\u2028", "a\x1b"):
        assert bad not in text


def test_below_the_level_there_is_nothing() -> None:
    stream = started()
    log.debug("unseen")
    log.start(stream, level=logging.DEBUG)
    log.debug("seen")
    assert [line["event"] for line in lines(stream)] == ["seen"]


def test_a_foreign_error_is_told_without_its_words() -> None:
    stream = started()
    try:
        fail_with_words()
    except ExceptionGroup as error:
        log.failure("request failed", error, request=Request("GET", "/v1/log?cwd=prompt", [], b""))
    (line,) = lines(stream)
    assert line["error"] == ["ExceptionGroup", "ValueError", "KeyError"]
    assert line["route"] == "GET /v1/log"
    assert line["level"] == "error"
    assert line["at"][-1].endswith(" fail_with_words")
    assert "prompt" not in stream.getvalue()


def test_an_error_of_ours_is_told_with_its_words() -> None:
    stream = started()
    log.failure("request refused", StorageError("/p", "write", "No space left on device"))
    log.failure("request failed", FileNotFoundError(2, "No such file", "/p"))
    first, second = lines(stream)
    assert (first["level"], first["fact"]) == (
        "warning",
        "cannot write /p: No space left on device",
    )
    assert (second["level"], second["fact"]) == ("error", "No such file: /p")


def test_a_deep_traceback_is_cut() -> None:
    def fall(depth: int) -> None:
        if depth:
            fall(depth - 1)
        raise ValueError

    stream = started()
    try:
        fall(100)
    except ValueError as error:
        log.failure("x", error)
    assert len(lines(stream)[0]["at"]) == log.FRAMES


def test_a_librarys_line_comes_in_the_same_form() -> None:
    stream = started()
    try:
        int("a prompt")
    except ValueError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved\n%s", "a prompt")
    logging.getLogger("asyncio").info("not for us")
    (line,) = lines(stream)
    assert line["event"] == "Task exception was never retrieved"
    assert line["error"] == ["ValueError"]
    assert "prompt" not in stream.getvalue()


def test_a_save_is_one_line() -> None:
    stream = started()
    log.save_ended(
        RunRecord(
            id="r1",
            project="p",
            session="s",
            state="done",
            owed_at=10.0,
            started_at=12.5,
            ended_at=20.0,
            attempts=2,
            backend="digest",
            model="m",
            usage=Usage(input=1, cache_read=2, cache_write=3, output=4),
            event="the user's words",
            before="0123456789abcdef",
            after="fedcba9876543210",
            ops=[
                OpRecord(kind="add", text="the user's words"),
                OpRecord(kind="add", text="the user's words"),
                OpRecord(kind="remove", line="the user's words", outcome="refused"),
            ],
            topics=["rules.md"],
        )
    )
    (line,) = lines(stream)
    assert line["event"] == "save"
    assert (line["run"], line["project"], line["outcome"]) == ("r1", "p", "done")
    assert (line["waited"], line["took"], line["attempts"]) == (2.5, 7.5, 2)
    assert [line[name] for name in ("input", "cache_read", "cache_write", "output")] == [1, 2, 3, 4]
    assert line["ops"] == ["2 applied", "1 refused"]
    assert (line["before"], line["after"]) == ("01234567", "fedcba98")
    assert "words" not in stream.getvalue()


def test_a_stream_that_is_full_or_closed_hurts_nobody() -> None:
    closed = io.StringIO()
    for stream in (Full(), closed):
        log.start(stream)
        closed.close()
        log.info("lost")
        logging.getLogger("asyncio").warning("lost")


def run(code: str, **streams: Any) -> int:
    """The exit code of a process that logs, ends well and says so by 7."""
    program = f"from memoryd.daemon import log; import sys\n{code}\nsys.exit(7)"
    env = {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", program], env=env, check=False, **streams
    ).returncode


def test_a_full_disk_and_a_closed_stderr_reach_no_work() -> None:
    code = "log.start()\nfor n in range(5): log.info('x', n=n); log.failure('y', ValueError())"
    with Path("/dev/full").open("w") as full:
        assert run(code, stderr=full) in (7, 120)
    assert run(code, preexec_fn=lambda: os.close(2)) == 7


def test_closed_standard_streams_are_filled() -> None:
    code = "log.fill_standard_streams()\nimport os\nassert os.open('/', os.O_RDONLY) > 2"
    assert run(code, preexec_fn=lambda: os.closerange(0, 3)) == 7
    assert run(code, stdin=subprocess.DEVNULL) == 7


def test_structlog_comes_without_rich_and_not_before_the_first_line() -> None:
    code = (
        "log.start(); assert 'structlog' not in sys.modules; log.info('x');"
        "assert 'structlog' in sys.modules and 'rich' not in sys.modules; import rich"
    )
    assert run(code, stderr=subprocess.DEVNULL) == 7

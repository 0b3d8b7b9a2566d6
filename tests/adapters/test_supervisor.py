from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import processes
import pytest
from blockbuster import blockbuster_ctx

from memoryd.adapters import guard, supervisor
from memoryd.adapters.supervisor import Child, ChildError, Command, Finished, run, scrubbed, started

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

LIMIT = 1024

TREE = "sleep 600 & sh -c 'trap : TERM; sleep 600 & echo up; wait; sleep 600' & wait"
"""A child with children of its own, one of which does not end when it is asked."""


@pytest.fixture(autouse=True)
def _loop_is_never_blocked() -> Iterator[None]:
    with blockbuster_ctx("memoryd.adapters"):
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tag() -> str:
    return processes.new_tag()


def shell(script: str, tag: str = "") -> Command:
    return Command(("/bin/sh", "-c", script), {"PATH": os.defpath, processes.TAG: tag})


async def first_line(child: Child) -> bytes:
    async for line in child.lines():
        return line
    raise AssertionError("no line came")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_input_goes_in_and_output_and_status_come_out() -> None:
    finished = await run(shell("cat; exit 3"), input=b"abc", deadline=10, limit=LIMIT)
    assert finished == Finished(3, b"abc")


async def test_a_signal_shows_as_a_shell_shows_it() -> None:
    finished = await run(shell("kill -9 $$"), deadline=10, limit=LIMIT)
    assert finished.code == 128 + signal.SIGKILL


async def test_a_program_that_is_not_there_ends_with_127() -> None:
    finished = await run(Command(("/nowhere/program",), {}), deadline=10, limit=LIMIT)
    assert finished == Finished(127, b"")


async def test_a_directory_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    command = Command(("/bin/true",), {}, tmp_path / "gone")
    with pytest.raises(ChildError, match="true: cannot start: No such file or directory"):
        await run(command, deadline=10, limit=LIMIT)


async def test_output_is_kept_up_to_the_limit() -> None:
    finished = await run(shell("yes | head -c 100000"), deadline=10, limit=LIMIT)
    assert len(finished.output) == LIMIT


async def test_a_program_that_reads_nothing_is_no_error() -> None:
    finished = await run(shell("exit 0"), input=b"x" * 1_000_000, deadline=10, limit=LIMIT)
    assert finished.code == 0


async def test_a_line_without_an_end_counts_and_one_without_measure_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with started(shell("printf 'one\\ntwo'")) as child:
        assert [line async for line in child.lines()] == [b"one", b"two"]
    monkeypatch.setattr(supervisor, "LINE_LIMIT", 1000)
    with pytest.raises(ChildError, match="more than 1000 bytes"):
        async with started(shell("yes | tr -d '\\n'")) as child:
            assert [line async for line in child.lines()] == []


async def test_a_child_carries_the_marker_and_nothing_that_it_was_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-made-up")
    finished = await run(Command(("/usr/bin/env",), {"A": "b"}), deadline=10, limit=LIMIT)
    names = {line.split(b"=")[0] for line in finished.output.split()}
    # The guard's interpreter names a UTF-8 locale where there is none.
    assert names - {b"LC_CTYPE"} == {b"A", b"MEMORYD_CHILD"}


def test_scrubbed_keeps_home_path_language_and_folders() -> None:
    kept = {"HOME": "/h", "PATH": "/p", "LANG": "C", "LC_ALL": "C", "XDG_STATE_HOME": "/s"}
    secret = {"ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_SESSION_ID": "s", "AI_AGENT": "a"}
    assert scrubbed({**kept, **secret}) == kept


async def test_a_child_leads_a_session_of_its_own() -> None:
    async with started(
        shell("ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat")
    ) as child:
        assert int(await first_line(child)) != os.getsid(0)


async def test_a_deadline_ends_the_whole_group(tag: str) -> None:
    finished = await run(shell(TREE, tag), deadline=0.5, limit=LIMIT)
    assert finished.code is None
    assert finished.output == b"up\n"
    assert await processes.none_alive(tag)


async def test_a_program_that_does_not_end_politely_is_killed(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "POLITE", 0.1)
    finished = await run(
        shell("trap '' TERM; sleep 600; sleep 600", tag), deadline=0.1, limit=LIMIT
    )
    assert finished.code is None
    assert await processes.none_alive(tag)


async def test_an_exception_ends_the_whole_group(tag: str) -> None:
    async def fail() -> None:
        async with started(shell(TREE, tag)) as child:
            await first_line(child)
            assert len(processes.alive(tag)) > 3
            raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        await fail()
    assert await processes.none_alive(tag)


async def test_a_cancelled_task_ends_the_whole_group(tag: str) -> None:
    async def hold() -> None:
        async with started(shell(TREE, tag)) as child:
            await first_line(child)
            tasks.cancel_scope.cancel()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
    assert await processes.none_alive(tag)


async def test_what_a_program_leaves_running_ends_with_it(tag: str) -> None:
    command = shell("sleep 600 >/dev/null & exit 0", tag)
    finished = await run(command, deadline=10, limit=LIMIT)
    assert finished.code == 0
    assert await processes.none_alive(tag)


async def test_a_killed_guard_takes_its_program_along(tag: str) -> None:
    async with started(shell(TREE, tag)) as child:
        await first_line(child)
        os.kill(child._process.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
    assert await processes.none_alive(tag)


DAEMON = """
import anyio, sys
from memoryd.adapters.supervisor import Command, started
async def main():
    script, path, name, tag = sys.argv[1:]
    async with started(Command(("/bin/sh", "-c", script), {"PATH": path, name: tag})) as child:
        async for line in child.lines():
            print(line.decode(), flush=True)
            await anyio.sleep_forever()
anyio.run(main)
"""


async def test_a_killed_daemon_leaves_nothing(tag: str) -> None:
    arguments = [sys.executable, "-c", DAEMON, TREE, os.defpath, processes.TAG, tag]
    async with await anyio.open_process(arguments, stderr=None) as daemon:
        assert daemon.stdout is not None
        assert (await daemon.stdout.receive()).startswith(b"up")
        assert processes.alive(tag)
        daemon.kill()
    assert await processes.none_alive(tag)


async def test_fifty_runs_ended_at_random_leave_no_process_and_no_descriptor(tag: str) -> None:
    dice = random.Random(54)

    async def one(moment: float, *, by_kill: bool) -> None:
        with anyio.move_on_after(moment):
            async with started(shell(TREE, tag)) as child:
                if by_kill:
                    os.kill(child._process.pid, signal.SIGKILL)
                await child.wait()

    await run(shell("exit 0"), deadline=10, limit=LIMIT)
    before = descriptors()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(lambda: one(dice.random() * 0.3, by_kill=dice.random() < 0.3))
    assert await processes.none_alive(tag)
    assert descriptors() == before


def test_a_guard_without_a_daemon_kills_its_group(tag: str) -> None:
    """The same, seen from the guard alone: the pipe closes."""
    theirs, ours = os.pipe()
    guarded = subprocess.Popen(
        [sys.executable, "-I", "-S", str(guard.__file__), str(theirs), "/bin/sh", "-c", TREE],
        env={"PATH": os.defpath, processes.TAG: tag},
        stdout=subprocess.PIPE,
        pass_fds=[theirs],
        start_new_session=True,
    )
    with guarded:
        assert guarded.stdout is not None
        assert guarded.stdout.readline() == b"up\n"
        os.close(theirs)
        os.close(ours)
        assert guarded.wait(10) == -signal.SIGKILL
    assert anyio.run(processes.none_alive, tag)


def test_what_holds_an_environment_does_not_show_it() -> None:
    assert repr(Command(("/bin/true", "secret"), {"K": "v"})) == "Command('true', 1 arguments)"
    assert repr(Finished(0, b"text")) == "Finished(0, 4 bytes)"

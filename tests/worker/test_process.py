"""The worker as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import memoryd
from memoryd.adapters.forks.messages import (
    Answer,
    Ask,
    Broken,
    Connect,
    FromWorker,
    Ready,
    ToWorker,
    encode,
    from_worker,
)
from memoryd.adapters.forks.worker_link import worker_command
from memoryd.demo.messages_api import ScriptedApi

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-ant-made-up-for-the-worker"


class Worker:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, message: ToWorker) -> None:
        self._input.write(encode(message))
        self._input.flush()

    def receive(self) -> FromWorker:
        assert self.process.stdout is not None
        return from_worker(self.process.stdout.readline())

    def end_input(self) -> None:
        self._input.close()

    def looks(self) -> bytes:
        """What another process can see of it without reading its memory."""
        proc = Path(f"/proc/{self.process.pid}")
        return (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()

    @property
    def _input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin


@contextmanager
def running(*before_path: Path) -> Iterator[Worker]:
    command = worker_command(os.environ)
    path = os.pathsep.join([*map(str, before_path), command.env["PYTHONPATH"]])
    with subprocess.Popen(
        command.argv,
        env={**command.env, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Worker(process)
        process.kill()


def ask(id_: str) -> Ask:
    return Ask(
        id=id_,
        model="m",
        max_tokens=100,
        seconds=20.0,
        system="s",
        conversation=("one",),
        message="two",
    )


def test_it_answers_shows_no_key_and_ends_with_its_input() -> None:
    with ScriptedApi() as api, running() as worker:
        assert worker.receive() == Ready()
        worker.send(Connect(api_key=KEY, base_url=api.url))
        worker.send(ask("1"))
        assert isinstance(worker.receive(), Answer)
        assert api.messages[0].headers["x-api-key"] == KEY
        assert KEY.encode() not in worker.looks()
        worker.end_input()
        assert worker.process.wait(10) == 0


def test_it_ends_when_it_is_asked_to_also_in_the_middle_of_its_start() -> None:
    with running() as worker:
        worker.process.terminate()
        assert worker.process.wait(10) == -signal.SIGTERM


def test_without_the_sdk_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "anthropic.py").write_text("raise ModuleNotFoundError('no', name='anthropic')\n")
    with running(tmp_path) as worker:
        assert worker.receive() == Broken(fact="anthropic can't be imported")
        assert worker.process.wait(10) == 0


def python(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(memoryd.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )


def test_its_memory_is_in_no_core_dump_and_no_debugger() -> None:
    done = python(
        "import ctypes, resource; from memoryd.worker.__main__ import close_to_others;"
        "close_to_others();"
        "print(ctypes.CDLL(None).prctl(3), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    assert done.stdout == "0 (0, 0)\n"


def test_what_a_library_prints_is_not_among_the_lines() -> None:
    done = python(
        "import os; from memoryd.worker.__main__ import take_standard_output;"
        "out = take_standard_output(); print('noise', flush=True); os.write(out, b'line')"
    )
    assert (done.stdout, done.stderr) == ("line", "noise\n")

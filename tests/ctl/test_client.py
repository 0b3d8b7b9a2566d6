from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from answering import AnsweringDaemon, Reply

from memoryd.ctl.client import Client, GenerationError, SaidNoError
from memoryd.errors import NotRunningError
from memoryd.protocol import (
    Done,
    Follow,
    GetLog,
    GetVersion,
    Pause,
    Problem,
    RunList,
    Save,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DONE = msgspec.json.encode(Done(sentence="alpha: nothing is owed"))


def env(folder: Path) -> dict[str, str]:
    """An environment in which everything lies below `folder`."""
    return {"MEMORYD_SOCKET": str(folder / "s"), "XDG_STATE_HOME": str(folder / "state")}


def client(folder: Path, *, limit: float = 20.0) -> Client:
    return Client(env(folder), limit=limit)


@contextmanager
def daemon(
    folder: Path, body: bytes = DONE, status: int = 200, generation: str = "1"
) -> Iterator[AnsweringDaemon]:
    with AnsweringDaemon(folder / "s", Reply(body, status, generation)) as found:
        yield found


@contextmanager
def speaking(folder: Path, head: str, *chunks: bytes) -> Iterator[None]:
    """A daemon that says `head` and then the chunks, whatever it is asked, and closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen()

    def speak() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head.replace("\n", "\r\n").encode())
            for chunk in chunks:
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    thread = Thread(target=speak)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listener.close()


class TestAsk:
    def test_a_command_goes_as_json(self, folder: Path) -> None:
        with daemon(folder) as asked:
            found = client(folder).ask(Pause(project="alpha", seconds=7200.0), Done)
        assert found.sentence == "alpha: nothing is owed"
        assert asked.only == ("pause", {"project": "alpha", "seconds": 7200.0})

    def test_a_read_goes_as_a_query(self, folder: Path) -> None:
        with daemon(folder, b'{"runs":[]}') as asked:
            message = GetLog(cwd="/home/user/a b&c=ä", skipped=True)
            assert client(folder).ask(message, RunList).runs == []
        assert asked.only == ("log", {"cwd": "/home/user/a b&c=ä", "skipped": "true"})

    def test_a_field_that_is_not_known_is_ignored(self, folder: Path) -> None:
        body = b'{"version":"2","generation":1,"pid":7,"started_at":1.5,"new":{}}'
        with daemon(folder, body):
            assert client(folder).ask(GetVersion(), Version).version == "2"

    def test_a_refusal_keeps_its_sentence_and_hint(self, folder: Path) -> None:
        body = msgspec.json.encode(Problem(code="nothing_runs", sentence="no save", hint="x y"))
        with daemon(folder, body, 409), pytest.raises(SaidNoError, match="no save") as raised:
            client(folder).ask(Save(), Done)
        assert raised.value.hint == "x y"
        assert raised.value.problem.code == "nothing_runs"

    def test_a_refusal_without_words_says_its_status(self, folder: Path) -> None:
        with daemon(folder, b"\xff", 500), pytest.raises(SaidNoError, match="status 500"):
            client(folder).ask(Save(), Done)

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff\xfe", b'{"sentence":1}'])
    def test_an_answer_that_is_none_is_a_refusal(self, folder: Path, body: bytes) -> None:
        with daemon(folder, body), pytest.raises(SaidNoError, match="can't be read"):
            client(folder).ask(Save(), Done)

    @pytest.mark.parametrize(
        ("theirs", "hint", "words"),
        [("0", "memoryctl restart", "update the daemon"), ("2", "", "update this memoryctl")],
    )
    def test_another_generation_is_said_with_the_side_to_update(
        self, folder: Path, theirs: str, hint: str, words: str
    ) -> None:
        with (
            daemon(folder, b"", 404, theirs),
            pytest.raises(GenerationError, match=words) as raised,
        ):
            client(folder).ask(Save(), Done)
        assert raised.value.hint == hint


class TestLines:
    def test_come_whole_however_the_body_is_cut(self, folder: Path) -> None:
        head = "HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n"
        with speaking(folder, head, b'{"a":1}\n{"b"', b":2}\n", b""):
            assert list(client(folder).lines(Follow())) == [b'{"a":1}', b'{"b":2}']

    @pytest.mark.parametrize("more", ["", "connection: close\n"])
    def test_may_be_silent_for_hours(self, folder: Path, more: str) -> None:
        head = f"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n{more}\n"
        with speaking(folder, head, b"{}\n", b""):
            stream: Any = client(folder).stream("GET", "/v1/follow", b"")
            assert next(stream) == b"{}\n"
            assert stream.gi_frame.f_locals["connection"]._own.gettimeout() is None
            assert list(stream) == []

    def test_a_stream_that_breaks_off_is_said(self, folder: Path) -> None:
        head = "HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n"
        with (
            speaking(folder, head, b'{"a":1}\n'),
            pytest.raises(NotRunningError, match="broke off"),
        ):
            list(client(folder).lines(Follow()))


class TestWhereNobodyAnswers:
    def fault(self, folder: Path, *, limit: float = 20.0) -> NotRunningError:
        with pytest.raises(NotRunningError) as raised:
            client(folder, limit=limit).ask(GetVersion(), Version)
        return raised.value

    def test_no_socket(self, folder: Path) -> None:
        found = self.fault(folder)
        assert (found.fact, found.hint) == ("there is no socket", "memoryctl start")

    def test_a_socket_that_a_killed_daemon_left(self, folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "s"))
        assert self.fault(folder).fact == "nobody listens on its socket"

    def test_a_file_in_its_place(self, folder: Path) -> None:
        (folder / "s").write_text("")
        assert self.fault(folder).fact == "there is something that is no socket of ours"

    def test_a_folder_that_others_can_enter(self, folder: Path) -> None:
        with daemon(folder):
            folder.chmod(0o755)
            found = self.fault(folder)
        assert found.fact == "its directory is open to others (mode 0755)"
        assert found.hint == f"chmod 700 '{folder}'"

    def test_a_daemon_that_hangs(self, folder: Path) -> None:
        with AnsweringDaemon(folder / "s", lambda _: None):
            found = self.fault(folder, limit=0.05)
        assert found.fact == f"process {os.getpid()} took the request and gave no answer for 0.05 s"
        assert found.hint == "memoryctl logs"

    @pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is in /proc")
    def test_a_daemon_that_is_stopped(self, folder: Path) -> None:
        code = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
        code += "; s.listen(); print(flush=True); time.sleep(60)"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(folder / "s")], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            found = self.fault(folder, limit=0.05)
            process.kill()
        assert found.fact == f"process {process.pid} is stopped by a signal"
        assert found.hint == f"kill -CONT {process.pid}"

    def test_a_daemon_that_breaks_off(self, folder: Path) -> None:
        with speaking(folder, "HTTP/1.1 200 OK\ncontent-length: 9\n\n"):
            assert "broke off" in self.fault(folder).fact


class TestWhereItIsFound:
    def test_the_control_socket_where_the_first_is_gone(self, folder: Path) -> None:
        state = folder / "state" / "memoryd"
        state.mkdir(mode=0o700, parents=True)
        state.parent.chmod(0o700)
        with AnsweringDaemon(state / "control.sock", Reply(DONE)):
            assert client(folder).ask(Save(), Done).sentence

    def test_the_kernel_says_who_listens(self, folder: Path) -> None:
        with daemon(folder):
            assert client(folder).daemon_pid() == os.getpid()

    def test_a_busy_daemon_is_waited_for(self, folder: Path) -> None:
        """A full backlog is no missing daemon."""
        with socket.socket(socket.AF_UNIX) as listener, ExitStack() as waiting:
            listener.bind(str(folder / "s"))
            listener.listen(0)
            first = waiting.enter_context(socket.socket(socket.AF_UNIX))
            first.connect(str(folder / "s"))
            asking = Thread(target=lambda: answers.append(client(folder).ask(Save(), Done)))
            answers: list[Done] = []
            asking.start()
            waiting.enter_context(listener.accept()[0])
            connection = waiting.enter_context(listener.accept()[0])
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(DONE) + DONE)
            asking.join()
        assert [answer.sentence for answer in answers] == ["alpha: nothing is owed"]

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_daemon import FakeDaemon, Reply

from memoryd.ctl.plugin import hook_interpreter, template
from memoryd.protocol import EVENT_BODY_LIMIT, HEADER_LIMIT

if TYPE_CHECKING:
    from fake_daemon import Arrival

pytestmark = pytest.mark.e2e

STATE_ROUTES = ["prompt_submitted", "tools_ran", "turn_ended", "turn_failed", "session_ended"]
EVENT = b'{"session_id":"s1","hook_event_name":"Stop"}\n'
SPOOLED_NAME = re.compile(r"\d{20}-[0-9a-f]{32}\.http\Z")
LIMIT = 20.0


@dataclass
class Shim:
    """One way to call the shim; the socket and the spool lie in a private folder."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ("-I", "-S", "-B")
    program: tuple[str, ...] = (str(template() / "shim.py"),)

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    @property
    def spool(self) -> Path:
        return self.folder / "state" / "spool"

    def command(self, route: str, *part: str) -> list[str]:
        interpreter = str(hook_interpreter())
        called = [interpreter, *self.flags, *self.program]
        return [*called, str(self.socket), str(self.spool), route, *part]

    def run(
        self, route: str, *part: str, stdin: bytes | int = EVENT, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end and check what holds whatever happens: exit 0, nothing on stderr."""
        given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            self.command(route, *part),
            env=self.env,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            **(given | more),
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done

    def start(self, route: str, *part: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(route, *part),
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def spooled(self) -> list[bytes]:
        """The requests in the spool, oldest first."""
        if not self.spool.exists():
            return []
        assert all(SPOOLED_NAME.match(name) for name in names(self.spool)), names(self.spool)
        return [(self.spool / name).read_bytes() for name in names(self.spool)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    return Shim(tmp_path)


def feed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(EVENT)
    process.stdin.close()
    process.stdin = None


def finish(process: subprocess.Popen[bytes], data: bytes | None = None) -> bytes:
    """What it printed, once it ended as a hook has to."""
    out, err = process.communicate(data, timeout=LIMIT)
    assert (process.returncode, err) == (0, b"")
    return out


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


class TestWhatIsSent:
    def test_the_event_and_its_id(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket) as daemon:
            shim.run("turn_ended")
            shim.run("turn_ended")
        first, second = daemon.arrivals
        assert (first.route, first.body) == ("turn_ended", EVENT)
        assert re.fullmatch(r"[0-9a-f]{32}", first.headers["memoryd-event"])
        assert first.headers["memoryd-event"] != second.headers["memoryd-event"]
        assert first.headers["memoryd-part"] == "0"

    def test_the_part_of_a_start(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket) as daemon:
            shim.run("session_started", "4")
        assert daemon.arrivals[0].headers["memoryd-part"] == "4"

    def test_values_of_the_environment_cannot_inject_a_header(self, shim: Shim) -> None:
        shim.env = {
            "CLAUDE_CONFIG_DIR": "/home/ü/.claude",
            "CLAUDE_PROJECT_DIR": "/a\r\nmemoryd-part: 5",
            "CLAUDE_PID": str(os.getpid()),
            "CLAUDE_CODE_ENTRYPOINT": "cli",
            "CLAUDE_CODE_SESSION_ATTENDED": "1",
        }
        with FakeDaemon(shim.socket) as daemon:
            shim.run("turn_ended")
        arrival = daemon.arrivals[0]
        assert arrival.headers["memoryd-part"] == "0"
        assert {name: arrival.said(name) for name in ("config_dir", "project_dir", "pid")} == {
            "config_dir": "/home/ü/.claude",
            "project_dir": "/a\r\nmemoryd-part: 5",
            "pid": str(os.getpid()),
        }
        assert (arrival.said("entrypoint"), arrival.said("attended")) == ("cli", "1")
        assert arrival.said("origin") == shim.program[0]

    def test_the_hosts_program(self, shim: Shim) -> None:
        shim.env = {"CLAUDE_PID": str(os.getpid())}
        with FakeDaemon(shim.socket) as daemon:
            shim.run("turn_ended")
        link = Path(f"/proc/{os.getpid()}/exe")
        wanted = str(link.readlink()) if link.exists() else ""
        assert daemon.arrivals[0].said("executable") == wanted

    @pytest.mark.parametrize("pid", ["", "x/../1", "-1", "99999999999"])
    def test_an_odd_process_id_names_no_program(self, shim: Shim, pid: str) -> None:
        shim.env = {"CLAUDE_PID": pid}
        with FakeDaemon(shim.socket) as daemon:
            shim.run("turn_ended")
        assert daemon.arrivals[0].said("executable") == ""

    def test_endless_values_do_not_outgrow_the_head(self, shim: Shim) -> None:
        names = ("CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_PID")
        for length in (900, 20_000):
            shim.env = dict.fromkeys((*names, "CLAUDE_CODE_SESSION_ATTENDED"), "9" * length)
            shim.run("turn_ended")
        heads = [request.partition(b"\r\n\r\n")[0] for request in shim.spooled()]
        assert all(len(head) < HEADER_LIMIT for head in heads)
        assert b"config_dir=" in heads[0]
        assert b"config_dir=" not in heads[1]


class TestWhatIsPrinted:
    def test_the_body_of_an_answer(self, shim: Shim) -> None:
        body = json.dumps({"hookSpecificOutput": {"additionalContext": "ü" * 9000}}).encode()
        with FakeDaemon(shim.socket, lambda _: Reply(body=body)):
            done = shim.run("session_started", "1")
        assert done.stdout == body
        assert shim.spooled() == []

    @pytest.mark.parametrize("status", [201, 204, 400, 404, 409, 426])
    def test_nothing_of_any_other_answer(self, shim: Shim, status: int) -> None:
        body = b"" if status == 204 else b'{"code":"no"}'
        with FakeDaemon(shim.socket, lambda _: Reply(status, body)):
            assert shim.run("session_started", "1").stdout == b""
        assert shim.spooled() == []

    @pytest.mark.parametrize("status", [500, 503])
    def test_a_daemon_that_could_not_take_the_event_finds_it_in_the_spool(
        self, shim: Shim, status: int
    ) -> None:
        with FakeDaemon(shim.socket, lambda _: Reply(status, b"{}")):
            assert shim.run("turn_ended").stdout == b""
        assert [body_of(request) for request in shim.spooled()] == [EVENT]

    def test_the_status_line(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket, lambda _: Reply(body=b"memory: 3 added 09:14\n")):
            assert shim.run("statusline").stdout == b"memory: 3 added 09:14\n"

    def test_the_connection_is_held_until_the_answer_is_out(self, shim: Shim) -> None:
        reply = Reply(body=b"x" * 1_000_000)
        with FakeDaemon(shim.socket, lambda _: reply):
            process = shim.start("session_started", "1")
            feed(process)
            assert process.stdout is not None
            first = os.read(process.stdout.fileno(), 1)
            # A megabyte does not fit into a pipe: it is still printing.
            assert not reply.ended.is_set()
            assert first + finish(process) == reply.body
            assert reply.ended.wait(LIMIT)

    def test_nobody_reads_it(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket, lambda _: Reply(body=b"x" * 1_000_000)):
            process = shim.start("session_started", "1")
            assert process.stdout is not None
            process.stdout.close()
            process.stdout = None
            finish(process, EVENT)

    def test_tool_events_wait_for_no_answer(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket, lambda _: None) as daemon:
            assert shim.run("tools_ran").stdout == b""
            daemon.wait_for_routes("tools_ran")
        assert daemon.arrivals[0].body == EVENT
        assert shim.spooled() == []


class TestADaemonThatDoesNotTakeIt:
    @pytest.mark.parametrize("route", STATE_ROUTES)
    def test_absent(self, shim: Shim, route: str) -> None:
        assert shim.run(route).stdout == b""
        (request,) = shim.spooled()
        (name,) = names(shim.spool)
        assert request.startswith(f"POST /v1/{route} HTTP/1.1\r\n".encode())
        assert f"\r\nmemoryd-event: {name[21:53]}\r\n".encode() in request
        assert body_of(request) == EVENT
        assert (shim.spool / name).stat().st_mode & 0o777 == 0o600
        assert shim.spool.stat().st_mode & 0o777 == 0o700
        assert shim.spool.parent.stat().st_mode & 0o777 == 0o700

    def test_one_part_stands_for_a_start(self, shim: Shim) -> None:
        for part in range(1, 7):
            assert shim.run("session_started", str(part)).stdout == b""
        (request,) = shim.spooled()
        assert b"\r\nmemoryd-part: 1\r\n" in request

    def test_a_status_line_is_no_event(self, shim: Shim) -> None:
        assert shim.run("statusline").stdout == b""
        assert shim.spooled() == []

    def test_the_socket_of_a_dead_one(self, shim: Shim) -> None:
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            dead.bind(str(shim.socket))
        shim.run("turn_ended")
        assert len(shim.spooled()) == 1

    def test_hung(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket, lambda _: None) as daemon:
            assert shim.run("turn_ended").stdout == b""
        (request,) = shim.spooled()
        # Under the same id, so that a daemon that took it after all drops this one.
        sent = f"\r\nmemoryd-event: {daemon.arrivals[0].headers['memoryd-event']}\r\n"
        assert sent.encode() in request

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"\0" * 500,
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{half",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n\r\n{}",
            b"\r\n\r\ncontent-length: 0",
        ],
    )
    def test_an_answer_that_is_none(self, shim: Shim, answer: bytes) -> None:
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(shim.socket))
            listener.listen()
            process = shim.start("turn_ended")
            feed(process)
            with closing(listener.accept()[0]) as connection:
                connection.recv(65536)
                connection.sendall(answer)
            assert finish(process) == b""
        assert len(shim.spooled()) == 1

    def test_a_full_backlog_is_waited_for(self, shim: Shim) -> None:
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(shim.socket))
            listener.listen(0)
            fill(listener)
            shim.run("turn_ended")
            assert len(shim.spooled()) == 1
            process = shim.start("session_started", "2")
            feed(process)
            request = b""
            while not request:  # those that filled it sent nothing
                with closing(listener.accept()[0]) as connection:
                    request = connection.recv(65536)
            assert body_of(request) == EVENT
            finish(process)

    def test_a_large_body_to_a_hung_daemon(self, shim: Shim) -> None:
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(shim.socket))
            listener.listen()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            shim.run("tools_ran", stdin=b"x" * 1_000_000)
        assert [len(body_of(request)) for request in shim.spooled()] in ([], [EVENT_BODY_LIMIT])

    def test_ended_by_the_host_while_it_waits(self, shim: Shim) -> None:
        with FakeDaemon(shim.socket, lambda _: None) as daemon:
            process = shim.start("session_started", "1")
            feed(process)
            daemon.wait_for_routes("session_started")
            process.send_signal(signal.SIGTERM)
            assert finish(process) == b""
        assert len(shim.spooled()) == 1


def fill(listener: socket.socket) -> None:
    """Connect until the backlog takes no more; a connection stays in it though its client has left."""
    while True:
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.setblocking(False)
            try:
                client.connect(listener.getsockname())
            except BlockingIOError:
                return


class TestWhoIsTrusted:
    def sent(self, shim: Shim, **more: Any) -> list[Arrival]:
        """What a daemon at the shim's socket gets to see of an event, which is in the spool then."""
        with FakeDaemon(shim.folder / "s", lambda _: Reply(body=b"false context")) as daemon:
            assert shim.run("turn_ended", **more).stdout == b""
        assert len(shim.spooled()) == 1
        return daemon.arrivals

    @pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, 0o720])
    def test_a_folder_open_to_others(self, shim: Shim, mode: int) -> None:
        shim.folder.chmod(mode)
        assert self.sent(shim) == []

    def test_a_folder_by_a_link(self, shim: Shim) -> None:
        (shim.folder / "real").mkdir(mode=0o700)
        (shim.folder / "link").symlink_to("real")
        linked = Shim(shim.folder / "link")
        with FakeDaemon(shim.folder / "real" / "s") as daemon:
            linked.run("turn_ended")
        assert daemon.arrivals == []

    def test_a_socket_by_a_link(self, shim: Shim) -> None:
        with FakeDaemon(shim.folder / "real") as daemon:
            shim.socket.symlink_to("real")
            shim.run("turn_ended")
        assert daemon.arrivals == []
        assert len(shim.spooled()) == 1

    def test_a_file_in_place_of_the_socket(self, shim: Shim) -> None:
        shim.socket.write_bytes(b"")
        shim.run("turn_ended")
        assert len(shim.spooled()) == 1

    def test_another_users_folder(self, shim: Shim) -> None:
        assert self.sent(as_user_of_the_nth_question(shim, 1)) == []

    def test_another_users_socket(self, shim: Shim) -> None:
        assert self.sent(as_user_of_the_nth_question(shim, 2)) == []

    def test_another_users_process_behind_our_socket(self, shim: Shim) -> None:
        assert self.sent(as_user_of_the_nth_question(shim, 3)) == []

    def test_another_users_process_in_earnest(self, shim: Shim) -> None:
        if os.geteuid() != 0:
            print("not run: needs root")  # noqa: T201
            return
        nobody = 65534
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(shim.socket))
            os.seteuid(nobody)
            listener.listen()
            os.seteuid(0)
            shim.run("turn_ended")
            with closing(listener.accept()[0]) as connection:
                assert connection.recv(65536) == b""
        assert len(shim.spooled()) == 1


def as_user_of_the_nth_question(shim: Shim, number: int) -> Shim:
    """A shim whose process is told another uid the n-th time it asks for its own, and only then."""
    lines = (
        "import posix, sys",
        "mine = posix.geteuid()",
        f"answers = [mine] * {number - 1} + [mine + 1]",
        "posix.geteuid = lambda: answers.pop(0) if answers else mine",
        "sys.path.insert(0, sys.argv.pop(1))",
        "import shim",
    )
    return Shim(shim.folder, program=("-c", "\n".join(lines), str(template())))


class TestTheSpool:
    @pytest.mark.parametrize("mode", [0o750, 0o705, 0o777])
    def test_open_to_others(self, shim: Shim, mode: int) -> None:
        shim.spool.mkdir(parents=True)
        shim.spool.chmod(mode)
        shim.run("turn_ended")
        assert names(shim.spool) == []

    def test_a_link(self, shim: Shim) -> None:
        (shim.folder / "elsewhere").mkdir(mode=0o700)
        shim.spool.parent.mkdir()
        shim.spool.symlink_to(shim.folder / "elsewhere")
        shim.run("turn_ended")
        assert names(shim.folder / "elsewhere") == []

    def test_a_file(self, shim: Shim) -> None:
        shim.spool.parent.mkdir()
        shim.spool.write_bytes(b"mine")
        shim.run("turn_ended")
        assert shim.spool.read_bytes() == b"mine"

    def test_nowhere_to_make_it(self, shim: Shim) -> None:
        shim.folder = shim.folder / "not" / "there"
        shim.run("turn_ended")
        assert not shim.folder.exists()

    def test_no_room_on_the_disk(self, shim: Shim) -> None:
        def leave_no_room() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

        shim.run("turn_ended", preexec_fn=leave_no_room)
        assert names(shim.spool) == []

    def test_it_does_not_grow_for_ever(self, shim: Shim) -> None:
        shim.spool.mkdir(parents=True, mode=0o700)
        for number in range(1999):
            (shim.spool / f"{number:020}-{number:032x}.http").touch()
        shim.run("turn_ended")
        shim.run("turn_ended")
        assert len(names(shim.spool)) == 2000

    def test_order_of_names_is_order_of_events(self, shim: Shim) -> None:
        for number in range(3):
            shim.run("tools_ran", stdin=b"%d" % number)
        assert [body_of(request) for request in shim.spooled()] == [b"0", b"1", b"2"]


class TestSwitchedOff:
    @pytest.mark.parametrize(
        "env", [{"MEMORYD_DISABLE": "1"}, {"MEMORYD_DISABLE": "yes"}, {"MEMORYD_CHILD": ""}]
    )
    def test_nothing_happens(self, shim: Shim, env: dict[str, str]) -> None:
        shim.env = env
        with FakeDaemon(shim.socket, lambda _: Reply(body=b"context")) as daemon:
            assert shim.run("session_started", "1").stdout == b""
        assert daemon.arrivals == []
        assert shim.spooled() == []

    @pytest.mark.parametrize("value", ["", "0"])
    def test_a_switch_that_is_not_set(self, shim: Shim, value: str) -> None:
        shim.env = {"MEMORYD_DISABLE": value}
        with FakeDaemon(shim.socket) as daemon:
            shim.run("turn_ended")
        assert daemon.routes() == ["turn_ended"]


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class TestOddInput:
    @pytest.mark.parametrize(
        "stdin", [b"", b"null", b"[]", b"{}", os.urandom(1_000_000), b"\xff\xfe"]
    )
    def test_the_daemon_gets_to_see_it(self, shim: Shim, stdin: bytes) -> None:
        with FakeDaemon(shim.socket, lambda _: Reply(400, b"{}")) as daemon:
            assert shim.run("turn_ended", stdin=stdin).stdout == b""
        assert daemon.arrivals[0].body == stdin[:EVENT_BODY_LIMIT]

    def test_an_empty_event_is_not_worth_keeping(self, shim: Shim) -> None:
        shim.run("turn_ended", stdin=b"")
        assert shim.spooled() == []

    def test_fifty_megabytes_are_drained(self, shim: Shim) -> None:
        head = b'{"session_id":"s1","tool_response":"'
        with FakeDaemon(shim.socket) as daemon:
            # the kernel counts a parent's size before exec too: a small process has to be the parent
            measured = subprocess.run(
                [sys.executable, "-I", "-S", "-c", MEASURED, *shim.command("session_started", "1")],
                env=shim.env,
                input=head + b"x" * 50_000_000,
                capture_output=True,
                check=True,
            )
        assert daemon.arrivals[0].body == (head + b"x" * EVENT_BODY_LIMIT)[:EVENT_BODY_LIMIT]
        assert int(measured.stdout) < 60 * 1024

    def test_a_stdin_that_is_never_closed(self, shim: Shim) -> None:
        reader, writer = os.pipe()
        os.write(writer, EVENT)
        shim.run("turn_ended", stdin=reader)
        os.close(reader)
        os.close(writer)
        assert [body_of(request) for request in shim.spooled()] == [EVENT]

    @pytest.mark.parametrize("closed", [(0,), (1,), (0, 1), (2,), (0, 1, 2)])
    def test_closed_standard_descriptors(self, shim: Shim, closed: tuple[int, ...]) -> None:
        def close() -> None:
            for descriptor in closed:
                os.close(descriptor)

        answer = b"" if 1 in closed else b"context"
        with FakeDaemon(shim.socket, lambda _: Reply(body=b"context")) as daemon:
            assert shim.run("session_started", "1", preexec_fn=close).stdout == answer
        assert daemon.arrivals[0].body == (b"" if 0 in closed else EVENT)

    @pytest.mark.parametrize("arguments", [[], ["x"], ["x", "y"], ["x", "y", "z", "a", "b"]])
    def test_odd_arguments(self, shim: Shim, arguments: list[str]) -> None:
        command = [*shim.command("")[:-3], *arguments]
        done = subprocess.run(command, input=b"{}", capture_output=True, timeout=LIMIT, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    @pytest.mark.parametrize(
        "env",
        [
            {"PYTHONWARNINGS": "default", "PYTHONDEVMODE": "1", "LC_ALL": "xx"},
            {"PYTHONWARNINGS": "error", "PYTHONVERBOSE": "2", "LC_ALL": "C"},
            {"PYTHONSTARTUP": "/nowhere", "PYTHONHOME": "/nowhere", "PYTHONUTF8": "0"},
        ],
    )
    def test_odd_environments(self, shim: Shim, env: dict[str, str]) -> None:
        shim.folder = shim.folder / "ünï"
        shim.folder.mkdir(mode=0o700)
        shim.env = env
        with FakeDaemon(shim.socket, lambda _: Reply(body=b"{}")) as daemon:
            assert shim.run("session_started", "1").stdout == b"{}"
        shim.run("turn_ended")
        assert len(daemon.arrivals) == len(shim.spooled()) == 1


def test_it_imports_next_to_nothing(shim: Shim) -> None:
    def imported(*arguments: str) -> set[str]:
        command = [str(hook_interpreter()), "-I", "-S", "-B", "-X", "importtime", *arguments]
        done = subprocess.run(command, input=EVENT, capture_output=True, timeout=LIMIT, check=True)
        lines = done.stderr.decode().split("\n")[1:]
        return {line.rpartition("|")[2].strip() for line in lines}

    base = imported("-c", "pass")
    with FakeDaemon(shim.socket):
        alive = imported(*shim.command("turn_ended")[4:])
    absent = imported(*shim.command("turn_ended")[4:])
    assert alive - base <= {"_socket"}
    assert absent == alive

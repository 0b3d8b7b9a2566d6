"""Asking the daemon, and saying what is wrong where it does not answer.

Owns the connection of memoryctl: a socket of ours, in a private directory of ours, with a peer of ours.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

import msgspec

from memoryd import paths
from memoryd.errors import MemorydError, NotRunningError, UnsafePathError
from memoryd.protocol import GENERATION, GENERATION_HEADER, ROUTES, Message, Problem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

M = TypeVar("M", bound=Message)

CONNECT_LIMIT = 2
"""Seconds: a full backlog is waited for, since it is a busy daemon and not a missing one."""

ANSWER_LIMIT = 5.0
"""Seconds."""

_CHUNK = 65536

_ROUTE_OF = {kind: route for route, kind in ROUTES.items()}


class SaidNoError(MemorydError):
    """The daemon refused; `problem` is its answer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hint = problem.hint
        super().__init__(problem)

    def __str__(self) -> str:
        return self.problem.sentence


class NotSentError(MemorydError):
    """What was typed can't stand in a message: `text` is not UTF-8."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return f"not UTF-8: {self.text}"


class GenerationError(MemorydError):
    """Daemon and memoryctl speak different generations of the protocol."""

    def __init__(self, theirs: str) -> None:
        self.theirs = theirs
        self.hint = "memoryctl restart" if _is_older(theirs) else ""
        super().__init__(theirs)

    def __str__(self) -> str:
        side = "the daemon" if _is_older(self.theirs) else "this memoryctl"
        both = f"the daemon speaks generation {self.theirs}, this memoryctl {GENERATION}"
        return f"{both}: update {side}"


class Client:
    """Requests to the daemon of `env`. Each raises NotRunningError, SaidNoError, GenerationError.

    What asks with a message raises NotSentError, too.
    """

    def __init__(self, env: Mapping[str, str], *, limit: float = ANSWER_LIMIT) -> None:
        state = paths.state_dir(env)
        self._places = (paths.socket_path(env), paths.control_path(state))
        self._limit = limit

    @property
    def socket(self) -> Path:
        """Where the daemon should listen."""
        return self._places[0]

    def ask(self, message: Message, reply: type[M]) -> M:
        """The daemon's answer to `message`."""
        return decoded(self.ask_raw(message), reply)

    def ask_raw(self, message: Message) -> bytes:
        """The answer's body as it came."""
        method, name = _ROUTE_OF[type(message)]
        target, body = f"/v{GENERATION}/{name}", b""
        if method == "GET":
            target += f"?{_query(message)}"
        else:
            _require_utf8(message)
            body = msgspec.json.encode(message)
        return self.exchange(method, target, body)

    def exchange(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """One request as it is; the body of the answer."""
        return b"".join(self.stream(method, target, body, headers))

    def lines(self, message: Message) -> Iterator[bytes]:
        """The JSON lines of a stream, as they come, however long the daemon is silent."""
        _, name = _ROUTE_OF[type(message)]
        rest = b""
        target = f"/v{GENERATION}/{name}?{_query(message)}"
        for chunk in self.stream("GET", target, b""):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole

    def stream(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Generator[bytes, None, None]:
        """The body of the answer in pieces as they come; its head within the time limit."""
        connection = self._connected()
        try:
            connection.request(method, target, body or None, dict(headers or {}))
            with connection.getresponse() as response:
                _require_ours(response)
                if response.length is not None:
                    yield response.read()
                    return
                connection.wait_for_ever()
                while chunk := response.read1(_CHUNK):
                    yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise connection.broken(error, self._limit) from error
        finally:
            connection.close()

    def daemon_pid(self) -> int:
        """The process that listens, as the kernel says; 0 where the system does not tell."""
        connection = self._connected()
        connection.close()
        return connection.pid

    def _connected(self) -> _UnixConnection:
        """A connection on the socket, or on the control socket where that was deleted."""
        first: NotRunningError | None = None
        for path in self._places:
            try:
                return _UnixConnection(path, self._limit)
            except NotRunningError as error:
                first = first or error
        assert first is not None
        raise first


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the Unix socket at `path`, which has to be ours; `pid` is the other side's."""

    def __init__(self, path: Path, limit: float) -> None:
        super().__init__("memoryd", timeout=limit)
        self.path = path
        self.pid = 0
        if fault := _socket_fault(path):
            raise NotRunningError(path, fault)
        if fault := paths.private_dir_fault(path.parent):
            raise _hinted(path, f"its directory {fault}", f"chmod 700 '{path.parent}'")
        self.sock = self._own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect()
        except OSError as error:
            self._own.close()
            fact = (
                "nobody listens on its socket"
                if isinstance(error, ConnectionRefusedError)
                else f"its socket can't be reached: {error.strerror}"
            )
            raise NotRunningError(path, fact) from error
        except BaseException:
            self._own.close()
            raise
        self._own.settimeout(limit)

    def _connect(self) -> None:
        # A socket with a timeout of Python's gets EAGAIN at once where the backlog is full.
        wait = struct.pack("ll", CONNECT_LIMIT, 0)
        self._own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        self._own.connect(os.fsencode(self.path))
        uid, self.pid = _peer(self._own)
        if uid != os.geteuid():
            raise UnsafePathError(self.path, f"is served by uid {uid}")

    def wait_for_ever(self) -> None:
        """A stream began, which may be silent for hours."""
        # Not `self.sock`: http.client lets go of it where the answer ends with the connection.
        self._own.settimeout(None)

    def broken(self, error: Exception, limit: float) -> NotRunningError:
        """What it means that the exchange failed, with the command that mends it."""
        if not isinstance(error, TimeoutError):
            return NotRunningError(self.path, f"it broke off ({type(error).__name__})")
        if _is_stopped(self.pid):
            fact = f"process {self.pid} is stopped by a signal"
            return _hinted(self.path, fact, f"kill -CONT {self.pid}")
        who = f"process {self.pid}" if self.pid else "it"
        fact = f"{who} took the request and gave no answer for {limit:g} s"
        return _hinted(self.path, fact, "memoryctl logs")


def _hinted(path: Path, fact: str, hint: str) -> NotRunningError:
    found = NotRunningError(path, fact)
    found.hint = hint
    return found


def is_utf8(text: str) -> bool:
    """Whether a word that was typed, or a path, was UTF-8; what was not has lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decoded(data: bytes, reply: type[M]) -> M:
    """The message in a body; raises SaidNoError where it is none."""
    try:
        return msgspec.json.decode(data, type=reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        sentence = f"the daemon's answer can't be read: {error}"
        raise SaidNoError(Problem(code="bad_answer", sentence=sentence)) from error


def _require_ours(response: http.client.HTTPResponse) -> None:
    """Raises GenerationError, or SaidNoError for any status that is no success."""
    theirs = response.getheader(GENERATION_HEADER, str(GENERATION))
    if theirs != str(GENERATION):
        raise GenerationError(theirs)
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise SaidNoError(_problem(response.status, response.read()))


def _socket_fault(path: Path) -> str:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return "there is no socket"
    except OSError as error:
        return f"its socket can't be looked at: {error.strerror}"
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        return "there is something that is no socket of ours"
    return ""


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Uid and pid of the other side; pid 0 where the system does not tell."""
    if sys.platform == "darwin":
        credentials = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED
        pid = connection.getsockopt(0, 2)  # LOCAL_PEERPID
        return int(struct.unpack_from("=II", credentials)[1]), pid
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("=iII", credentials)
    return uid, pid


def _is_stopped(pid: int) -> bool:
    """SIGSTOP or a debugger holds it; False where the system has no such file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except (OSError, IndexError):
        return False


def _is_older(generation: str) -> bool:
    return generation.isdigit() and int(generation) < GENERATION


def _query(message: Message) -> str:
    _require_utf8(message)
    fields = msgspec.to_builtins(message)
    return urlencode(
        {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in fields.items()
        }
    )


def _require_utf8(message: Message) -> None:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, str) and not is_utf8(value):
            raise NotSentError(value)


def _problem(status: int, data: bytes) -> Problem:
    try:
        return msgspec.json.decode(data, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(code="bad_answer", sentence=f"the daemon answered with status {status}")

"""The hook shim: tells the daemon what happened and prints what it answers.

Imported by `PYTHON -I -S -B -c BOOT FOLDER SOCKET SPOOL ROUTE [PART]`, as the plugin registers it (BOOT
takes FOLDER away), with the host's event on stdin; as a script it takes the same from SOCKET on. Owns
the deadline, the checks of the socket, and leaving an event in the spool; knows neither JSON nor what
an event means. Whatever is wrong it exits 0, silent: a hook can never hurt the session.

Its whole cost is the interpreter's start, so it imports only what `-I -S` has loaded already and the
extension module for sockets. `from __future__` would be one more file to read.
"""
# ruff: noqa: INP001, SLF001  no package, and `posix._exit` is its public name

import _signal  # type: ignore[import-not-found]  # `signal` makes enums, which cost more than this file
import posix
import sys
import time

try:
    import _socket as socket  # not `socket`: it doubles the time of a start
except ImportError:
    import socket  # type: ignore[no-redef]

BODY_LIMIT = 256 * 1024
"""Bytes of stdin that are sent; the rest is read and dropped, so that the host can finish writing."""

VALUE_LIMIT = 1000
"""Bytes of one environment value: all together, as hex, they stay below the daemon's limit of a head."""

SPOOL_LIMIT = 2000
"""Files in the spool: it must not fill the disk where nobody starts a daemon again."""

DEADLINE = 0.12
START_DEADLINE = 2.0
"""Seconds for everything together, reading stdin too; a session's start may take the longer one."""

SPOOL_DEADLINE = 0.5
"""Seconds that keeping an undelivered event may take."""

ENDINGS = (_signal.SIGALRM, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT)
"""The deadline, and the host's: in print mode it ends the hook of StopFailure by SIGTERM."""

FORMAT, DIRECTORY, SOCKET, OTHERS = 0o170000, 0o040000, 0o140000, 0o000077
"""Bits of `st_mode`; the module `stat` would be an import."""


class EndedError(Exception):
    """The deadline passed, or the host ends this hook."""


class Wait:
    """What has to outlive a call: a signal asks whether somebody still waits for the daemon."""

    over = False
    connection: "socket.socket | None" = None
    """Kept to the exit: a part waits for the closing of the one before it, and then for the end of that
    process where the system lets the daemon hold on to it (Linux, pidfd): the host keeps the order of
    ends."""


def main() -> None:
    """Read one event, deliver it or leave it in the spool, print the answer."""
    env = posix.environ
    if b"MEMORYD_CHILD" in env or env.get(b"MEMORYD_DISABLE", b"") not in (b"", b"0"):
        return
    path, spool, route, part = (*sys.argv[1:], "0")[:4]
    at, event, body = time.time_ns(), posix.urandom(16).hex(), bytearray()
    occupy_standard_descriptors()
    set_deadline(START_DEADLINE if route == "session_started" else DEADLINE)
    try:
        read_stdin(body)
        answer = deliver(path, request(route, part, event, body), wait=route != "tools_ran")
        Wait.over = True
    except Exception:  # noqa: BLE001  no daemon, a hung one, rubbish: the spool is what is left
        Wait.over = True
        if body and route != "statusline" and part in ("0", "1"):
            _signal.setitimer(_signal.ITIMER_REAL, SPOOL_DEADLINE)
            keep(spool, f"{at:020}-{event}.http", request(route, part, event, body))
    else:
        write(1, answer)


def occupy_standard_descriptors() -> None:
    """Where the host closed one of 0, 1 and 2, our socket must not become what we print to."""
    while (descriptor := posix.open("/dev/null", posix.O_RDWR)) <= 2:  # noqa: PLR2004
        pass
    posix.close(descriptor)


def set_deadline(seconds: float) -> None:
    for number in ENDINGS:
        _signal.signal(number, end)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def end(number: int, _: object) -> None:
    """Ends the waiting; later only the timer ends anything, and then it is the process."""
    if not Wait.over:
        Wait.over = True
        raise EndedError
    if number == _signal.SIGALRM:
        posix._exit(0)


def read_stdin(body: bytearray) -> None:
    """Reads stdin to its end; what is sent of it is in `body` even when this raises."""
    while chunk := posix.read(0, 65536):
        body += chunk[: BODY_LIMIT - len(body)]


def request(route: str, part: str, event: str, body: bytearray) -> bytes:
    """The event as HTTP. Values go as hex: a newline in a path would inject a header."""
    env = posix.environ
    pid = env.get(b"CLAUDE_PID", b"")
    values = (
        ("config_dir", env.get(b"CLAUDE_CONFIG_DIR", b"")),
        ("project_dir", env.get(b"CLAUDE_PROJECT_DIR", b"")),
        ("pid", pid),
        ("executable", executable(pid)),
        ("entrypoint", env.get(b"CLAUDE_CODE_ENTRYPOINT", b"")),
        ("attended", env.get(b"CLAUDE_CODE_SESSION_ATTENDED", b"")),
        ("no_color", env.get(b"NO_COLOR", b"")),
        ("origin", __file__.encode(sys.getfilesystemencoding(), "surrogateescape")),
    )
    head = f"POST /v1/{route} HTTP/1.1\r\nhost: memoryd\r\ncontent-length: {len(body)}\r\n"
    head += f"memoryd-event: {event}\r\nmemoryd-part: {part}\r\n"
    said = ";".join(f"{n}={v.hex()}" for n, v in values if v and len(v) <= VALUE_LIMIT)
    return f"{head}memoryd-env: {said}\r\n\r\n".encode() + body


def executable(pid: bytes) -> bytes:
    """The host's program; a daemon in a sandbox may not read this link itself."""
    if not pid.isdigit():
        return b""
    try:
        return posix.readlink(b"/proc/%s/exe" % pid)
    except OSError:
        return b""


def deliver(path: str, data: bytes, *, wait: bool) -> bytes:
    """Send `data`; returns what to print. Raises where the daemon did not take the event."""
    require_ours(path.rpartition("/")[0], DIRECTORY, OTHERS)
    require_ours(path, SOCKET, 0)
    connection = Wait.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Blocking, so that it waits for room in a full backlog: a socket with a time-out fails at once.
    connection.connect(path)
    if peer_uid(connection) != posix.geteuid():
        raise PermissionError
    connection.sendall(data)
    return receive(connection) if wait else b""


def require_ours(path: str, kind: int, forbidden: int) -> None:
    found = posix.lstat(path)
    if found.st_uid != posix.geteuid() or found.st_mode & (FORMAT | forbidden) != kind:
        raise PermissionError


def peer_uid(connection: "socket.socket") -> int:
    """Whose process listens; in both systems' records the uid is the second word."""
    if sys.platform == "linux":
        record = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    else:
        record = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED, struct xucred
    return int.from_bytes(record[4:8], sys.byteorder)


def receive(connection: "socket.socket") -> bytes:
    """The body of an answer with status 200, nothing of another one below 500; else raises."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
        head, end_of_head, body = data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        if end_of_head and len(body) >= int(length):
            status = int(head.split(b" ", 2)[1])
            if status >= 500:  # noqa: PLR2004
                break
            return body if status == 200 else b""  # noqa: PLR2004
    raise ConnectionError


def keep(spool: str, name: str, data: bytes) -> None:
    """Leave the request in the spool: whole and synced under its name, or not at all."""
    folder = open_spool(spool)
    if len(posix.listdir(folder)) >= SPOOL_LIMIT:
        return
    temporary = f"{name}.tmp"
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL
    file = posix.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        write(file, data)
        posix.fsync(file)
        posix.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        posix.unlink(temporary, dir_fd=folder)


def open_spool(path: str) -> int:
    """A descriptor of the spool, which is made where it is missing; raises where others may enter."""
    flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW
    try:
        folder = posix.open(path, flags)
    except FileNotFoundError:
        make_private(path.rpartition("/")[0])
        make_private(path)
        folder = posix.open(path, flags)
    found = posix.fstat(folder)
    if found.st_uid != posix.geteuid() or found.st_mode & OTHERS:
        raise PermissionError
    return folder


def make_private(path: str) -> None:
    try:  # noqa: SIM105  `contextlib` would be an import
        posix.mkdir(path, 0o700)
    except FileExistsError:
        pass


def write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[posix.write(descriptor, data) :]


try:
    main()
finally:
    posix._exit(0)

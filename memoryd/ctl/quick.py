"""`memoryctl statusline` as the host calls it, after every turn: it starts as little as a hook does.

Owns the way from the environment to the shim, which then asks and prints in this very process. It says
in plain strings what `paths` says, since importing that would take longer than all the rest: a test
holds the two together, and whatever is not plain goes the long way.
"""

import fcntl
import os
import select
import stat
import sys

ROUTE = "statusline"

PATH_LIMIT = 103
"""Bytes, as `paths.SOCKET_PATH_LIMIT`."""

WAIT = 1000
"""Milliseconds that the host's words are waited for: a script's stdin may never say anything."""

FIONREAD = 0x541B if sys.platform == "linux" else 0x4004667F
"""How many bytes can be read; the module `termios` has it, for another import."""

OTHERS = 0o077


def as_a_hook() -> None:
    """Ask for the line of the session on stdin, print it and end; returns where that can't be done."""
    env = os.environ
    socket, state = socket_of(env), state_of(env)
    folder = _shim_folder()
    if not (socket and state and folder) or not _host_speaks():
        return
    sys.argv = ["shim", socket, f"{state}/spool", ROUTE]
    sys.path.insert(0, folder)
    import shim  # type: ignore[import-not-found]  # noqa: F401, PLC0415  it ends the process


def socket_of(env: "os._Environ[str] | dict[str, str]") -> str:
    """The daemon's socket, or empty where `paths.socket_path` has to decide."""
    named = env.get("MEMORYD_SOCKET", "")
    if not named:
        runtime, state = env.get("XDG_RUNTIME_DIR", ""), state_of(env)
        folder = runtime if runtime.startswith("/") and _private(runtime) else state
        named = f"{folder}/memoryd.sock" if folder else ""
    return named if _plain(named) and len(os.fsencode(named)) <= PATH_LIMIT else ""


def state_of(env: "os._Environ[str] | dict[str, str]") -> str:
    """The state directory, or empty where `paths.state_dir` has to decide."""
    named, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    if not named.startswith("/"):
        named = f"{home}/.local/state" if home.startswith("/") else ""
    return f"{named}/memoryd" if _plain(named) else ""


def _plain(path: str) -> bool:
    """It is absolute and reads the same as a `Path`."""
    return path.startswith("/") and all(part not in ("", ".") for part in path[1:].split("/"))


def _private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OTHERS
    )


def _shim_folder() -> str:
    """Where the shim ships: in the installed package, or in a checkout beside it; else empty."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    for root in (f"{package}/data", os.path.dirname(package)):  # noqa: PTH120
        folder = f"{root}/clients/claude_code"
        if os.path.exists(f"{folder}/shim.py"):  # noqa: PTH110
            return folder
    return ""


def _host_speaks() -> bool:
    """Whether stdin is a pipe or socket on which something was said: nothing is taken from it."""
    try:
        mode = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if not poll.poll(WAIT):
            return False
        return any(fcntl.ioctl(0, FIONREAD, bytes(4)))
    except OSError:
        return False

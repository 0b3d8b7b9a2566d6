"""The process between the daemon and a child: `python -I -S guard.py FD PROGRAM [ARGUMENT]...`.

Leads the child's process group, starts PROGRAM in it, waits for it and ends with its status. When the
pipe FD closes, which the kernel does for a daemon that was killed, it kills the whole group. A
parent-death signal would reach neither the program's own children nor macOS, and needs code between
fork and exec of the daemon. Knows nothing of memoryd: it is run by its path.
"""

from __future__ import annotations

import os
import select
import signal
import sys

CANNOT_START = 127
"""Status where PROGRAM can't be started, as a shell's."""


def main(lifeline: int, command: list[str]) -> int:
    """The status of `command`, 128 + signal where one ended it."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, _noted)
    # A handler and not SIG_IGN, which PROGRAM would inherit: the guard outlives a polite end.
    signal.signal(signal.SIGTERM, _noted)
    os.set_inheritable(lifeline, False)
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE])
    except OSError:
        return CANNOT_START
    _let_go_of_the_streams()
    return _wait(child, lifeline, wake)


def _wait(child: int, lifeline: int, wake: int) -> int:
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        ready, _, _ = select.select([lifeline, wake], [], [])
        if lifeline in ready:
            os.killpg(0, signal.SIGKILL)
        os.read(wake, 64)


def _let_go_of_the_streams() -> None:
    """The daemon sees the end of the output when PROGRAM closes it, not when the guard does."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _noted(_signal: int, _frame: object) -> None:
    """The wake-up descriptor says it all."""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

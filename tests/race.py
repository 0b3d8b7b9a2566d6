"""Many processes that want to be the daemon at the same instant.

`python race.py ROUNDS STARTS STATE MEMORY_ROOT SOCKET HOST_LOCKS ERRNO` prints, a line per round, how
many got it and how many were told that another did. All are forked and wait for one signal; who got
it ends without a word, so that the next round finds a stale socket. Where ERRNO is not empty, flock
says so below the state directory and the memory root.
"""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from pathlib import Path

from memoryd import paths
from memoryd.daemon import instance, listener
from memoryd.errors import AlreadyRunningError, MemorydError

GOT_IT = b"1"
TOLD = b"0"
BROKEN = b"?"


def main(rounds: int, starts: int, state: Path, memory_root: Path, path: Path) -> None:
    for _ in range(rounds):
        answers_out, answers = os.pipe()
        go, go_in = os.pipe()
        stay, stay_in = os.pipe()
        for _ in range(starts):
            if os.fork() == 0:
                os.close(go_in)
                os.close(stay_in)
                os.read(go, 1)
                os.write(answers, _start(state, memory_root, path))
                os.read(stay, 1)
                os._exit(0)
        os.close(go_in)
        said = b""
        while len(said) < starts:
            said += os.read(answers_out, starts)
        os.close(stay_in)
        for _ in range(starts):
            os.wait()
        for descriptor in (answers_out, answers, go, stay):
            os.close(descriptor)
        sys.stdout.write(f"{said.count(GOT_IT)} {said.count(TOLD)}\n")


def _start(state: Path, memory_root: Path, path: Path) -> bytes:
    try:
        held.append(instance.hold(state, memory_root))
        held.append(listener.bind(path))
        held.append(listener.bind(paths.control_path(state)))
    except AlreadyRunningError:
        # Whoever has a lock only would stop the one that gets everything.
        return TOLD
    except (MemorydError, OSError):
        traceback.print_exc()
        return BROKEN
    return GOT_IT


def _break_flock(code: int, *below: Path) -> None:
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if any(path == each or each in path.parents for each in below):
            raise OSError(code, os.strerror(code))
        real(descriptor, operation)

    fcntl.flock = flock  # type: ignore[assignment]


held: list[object] = []

if __name__ == "__main__":
    instance._host_locks = lambda: Path(sys.argv[6])
    if sys.argv[7]:
        _break_flock(int(sys.argv[7]), Path(sys.argv[3]), Path(sys.argv[4]))
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:6]))

"""The worker's start: out of reach for others first, then the import that takes seconds.

Owns the process: its standard output belongs to the lines alone, its memory is in no core dump and in
no debugger of another process, since it holds the API key. Ends when its input ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

import anyio

from memoryd.adapters.forks.messages import Broken, encode
from memoryd.worker.serve import serve

_PR_SET_DUMPABLE = 4


def main() -> None:
    close_to_others()
    lines_out = take_standard_output()
    try:
        # Imported here and not above: it takes 2.6 s, and where it fails the daemon has to hear why.
        from memoryd.worker.api import Api  # noqa: PLC0415
    except ImportError as error:
        os.write(lines_out, encode(Broken(fact=f"{error.name or 'a module'} can't be imported")))
        return
    anyio.run(serve, sys.stdin.fileno(), lines_out, Api)


def close_to_others() -> None:
    """No core dump, and on Linux no reading of this memory by another process of the same user."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def take_standard_output() -> int:
    """A descriptor for the lines; whatever else prints goes where standard error goes."""
    lines_out = os.dup(1)
    os.dup2(2, 1)
    return lines_out


if __name__ == "__main__":
    main()

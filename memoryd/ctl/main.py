"""`memoryctl`: from what was typed to an exit code.

Owns the exit codes and how a failure is told: one sentence and a command, never a traceback. Imports
what a command needs only when it is typed.
"""

from __future__ import annotations

import os
import sys

# Not the one of `typing`, whose import takes longer than a status line may.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from memoryd.ctl.shell import Shell
    from memoryd.errors import MemorydError

FINE, SAID_NO, NOT_RUNNING, OTHER_GENERATION = 0, 1, 3, 4
"""Exit codes; 2 is argparse's for what can't be understood."""

INTERRUPTED = 130
"""What shells give a command that Ctrl-C ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    if arguments is None:
        arguments = sys.argv[1:]
        if arguments == ["statusline"]:
            from memoryd.ctl import quick  # noqa: PLC0415  before anything that takes time

            quick.as_a_hook()
    _open_closed_streams()
    try:
        return _ended(_main(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()


def _main(arguments: list[str]) -> int:
    from memoryd.ctl import parser  # noqa: PLC0415  see `main`

    try:
        typed = parser.parse(arguments)
    except SystemExit as ended:  # argparse has said all: a help page, or what is wrong
        sys.exit(_ended(int(ended.code or FINE)))
    from memoryd.ctl.shell import Shell  # noqa: PLC0415  a help page needs none

    return attempt(_function(typed.run), typed, Shell.of_process())


def attempt(run: Callable[[Namespace, Shell], int], typed: Namespace, shell: Shell) -> int:
    """The command's exit code; a failure is told on stderr."""
    from memoryd.errors import MemorydError  # noqa: PLC0415  see `main`

    try:
        return run(typed, shell)
    except MemorydError as error:
        shell.complain(str(error), error.hint)
        return _code(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        shell.complain(f"{where}{error.strerror or error}")
        return SAID_NO
    except Exception as error:  # noqa: BLE001  a person can do nothing with a traceback
        shell.complain(f"memoryctl failed on this: {_place(error)}")
        return SAID_NO


def _function(named: str) -> Callable[[Namespace, Shell], int]:
    from importlib import import_module  # noqa: PLC0415  a help page needs none

    module, _, name = named.partition(":")
    found: Callable[[Namespace, Shell], int] = getattr(import_module(module), name)
    return found


def _code(error: MemorydError) -> int:
    from memoryd.errors import NotRunningError  # noqa: PLC0415  see `main`

    if isinstance(error, NotRunningError):
        return NOT_RUNNING
    from memoryd.ctl.client import GenerationError  # noqa: PLC0415  it raised this one, if any did

    return OTHER_GENERATION if isinstance(error, GenerationError) else SAID_NO


def _open_closed_streams() -> None:
    """Of `memoryctl <&- >&-` the interpreter makes None, and the next file gets the descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _ended(code: int) -> int:
    """The exit code once everything is out; a full disk is told by us, not at the interpreter's end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if code == FINE:
            sys.stderr.write(f"memoryctl: cannot write the output: {error.strerror}\n")
        _drop_output()
        return code or SAID_NO
    return code


def _reader_gone() -> int:
    """`memoryctl log | head`: nobody reads the rest, and nothing is wrong."""
    _drop_output()
    return FINE


def _drop_output() -> None:
    """What is left goes nowhere, also at the interpreter's end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _place(error: Exception) -> str:
    """Type and innermost place: what a report of a fault needs, without what a person wrote."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = os.path.basename(trace.tb_frame.f_code.co_filename)  # noqa: PTH119  no import for it
    return f"{type(error).__name__} in {file} line {trace.tb_lineno}"


if __name__ == "__main__":
    sys.exit(main())

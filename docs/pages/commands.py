"""The page of the commands: usage, options, an example and exit codes of each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from docs.pages.markdown import block, code, paragraph, table
from docs.pages.markdown import page as whole
from memoryd import __main__ as daemon
from memoryd.ctl import main, parser
from memoryd.ctl.apply import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memoryd.ctl.parser import Command

OPENING = """\
`memoryctl` alone is `memoryctl status`. Every command has `--help`. A project is that of the
directory that the command is typed in, unless `--project` names another; `--session` without an id
is the coding session that the command is typed in.

On a terminal there are tables and colours, elsewhere plain text; `NO_COLOR` is obeyed. `--json`
prints the daemon's message as it is on the wire ([protocol.md](protocol.md))."""

CODES: dict[int, str] = {
    main.FINE: "fine",
    main.SAID_NO: "the daemon said no, or the command failed; a sentence on stderr says why",
    parser.USAGE: "what was typed can't be understood",
    main.NOT_RUNNING: "memoryd does not answer",
    main.OTHER_GENERATION: "memoryctl and memoryd speak different generations of the protocol",
    main.INTERRUPTED: "Ctrl-C",
}

DAEMON_CODES: dict[int, str] = {
    0: "stopped as it was told to",
    1: "something else is in the way, such as a ledger that a newer version wrote",
    daemon.EX_TEMPFAIL: "another daemon runs already",
    daemon.EX_CONFIG: "the config, or a directory that others can write to, is refused",
}

DAEMON = """\
The daemon itself, in the foreground. `memoryctl start` runs it; it is typed only by a supervisor,
or by somebody who wants to see its log. `--log-file FILE` writes the log there instead of to
stderr."""

NEEDS_NO_DAEMON = "Needs no daemon."
ANSWERS_ANYWAY = "Exits with 0 where no daemon runs, too."

_MEMBERS = ", ".join(code(name) for name in Answer.__struct_fields__)

MORE: dict[str, str] = {
    "status": "Where no daemon runs it says what is there instead, and exits with 3.",
    "log": "The events cut the lines that they name; `memoryctl show` has all of them.",
    "show": (
        "`text` are the beginnings of the digests of MEMORY.md before and after. A run whose"
        " state is no end yet is going on."
    ),
    "save": "What waits for a pause to end still waits.",
    "stop": "Exits with 3 where no daemon runs.",
    "off": "`memoryctl off --session` is meant to be typed inside the session.",
    "apply": (
        f"{NEEDS_NO_DAEMON} Exits with 1 where the reply could not be read, would be held or may"
        f" not be written. An answer to a line of `--jsonl` has the members {_MEMBERS}; a line that"
        " is no case is answered with `error` alone."
    ),
    "plugin-dir": f"{NEEDS_NO_DAEMON} Run it again after an update or when Python moved.",
    "config": f"{NEEDS_NO_DAEMON} [settings.md](settings.md) describes each setting.",
    "statusline": (
        "Prints nothing where nothing was saved yet. As Claude Code's status line it is silent"
        " and exits with 0 where no daemon runs. [status-line.md](status-line.md) lists its"
        " forms."
    ),
    "logs": "Needs no daemon, only the log of one that `memoryctl start` started.",
    "version": ANSWERS_ANYWAY,
    "completion": NEEDS_NO_DAEMON,
    "demo": "Needs no daemon: it starts one of its own and stops it at the end.",
}


def page() -> str:
    """The page as Markdown."""
    return whole("Commands", code("memoryd/ctl/parser.py"), _parts())


def _parts() -> Iterator[str]:
    yield OPENING
    yield table(
        ("Command", "What"),
        ((f"[{each.name}](#memoryctl-{each.name})", each.summary) for each in parser.COMMANDS),
    )
    pages = _pages()
    for command in parser.COMMANDS:
        yield from _command(command, pages[command.name])
    yield "## Exit codes of memoryctl"
    yield _codes(CODES)
    yield "## memoryd"
    yield DAEMON
    yield _codes(DAEMON_CODES)


def _command(command: Command, page: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## memoryctl {command.name}"
    yield block(" ".join(("memoryctl", command.name, *_usage(page))))
    yield paragraph(command.text)
    yield MORE.get(command.name, "")
    yield table(("Option", "What"), ((code(_named(each)), each.help or "") for each in _said(page)))
    yield "Example:"
    yield block(command.example, "sh")


def _pages() -> dict[str, argparse.ArgumentParser]:
    for action in parser.build()._actions:  # noqa: SLF001  the only way to a command's parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    raise LookupError("memoryctl has no commands")


def _said(page: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments that somebody may type, but for --help."""
    return [each for each in page._actions if each.dest != "help"]  # noqa: SLF001  as above


def _usage(page: argparse.ArgumentParser) -> Iterator[str]:
    """Not argparse's own, which differs from one version of Python to the next."""
    groups = page._mutually_exclusive_groups  # noqa: SLF001  as above
    together = [group._group_actions for group in groups]  # noqa: SLF001  as above
    for action in sorted(_said(page), key=lambda each: not each.option_strings):
        group = next((members for members in together if action in members), None)
        if group is None:
            yield _bracketed(action)
        elif action is group[0]:
            yield f"[{' | '.join(_word(each) for each in group)}]"


def _bracketed(action: argparse.Action) -> str:
    optional = bool(action.option_strings) or action.nargs == "?"
    return f"[{_word(action)}]" if optional else _word(action)


def _word(action: argparse.Action) -> str:
    return " ".join(filter(None, (*action.option_strings[-1:], _value(action))))


def _named(action: argparse.Action) -> str:
    return " ".join(filter(None, (", ".join(action.option_strings), _value(action))))


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = "|".join(action.choices) if action.choices else str(action.metavar or action.dest)
    return f"[{name}]" if action.nargs == "?" and action.option_strings else name


def _codes(codes: dict[int, str]) -> str:
    return table(("Code", "What"), _sorted(codes.items()))


def _sorted(codes: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    for number, words in sorted(codes):
        yield code(str(number)), words

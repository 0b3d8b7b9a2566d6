"""The words of memoryctl: every command with its options, its help and an example.

Owns what can be typed. What a command does is named here as `module:function` and imported when it is
typed, so that no command pays for another.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memoryd.core.text import printable
from memoryd.ctl import options

if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = 2
"""Exit code of a command that can't be understood."""

PAGE_WIDTH = 100
"""Columns of a help page at most."""

DEFAULT = "status"
"""The command where none is named."""

_COMMANDS = "memoryd.ctl.commands"
_LOCAL = "memoryd.ctl.commands_local"
_LIFE = "memoryd.ctl.commands_life"


class Command(NamedTuple):
    """One command: `summary` for the list, `text` for its page, `run` as `module:function`."""

    name: str
    run: str
    summary: str
    text: str
    example: str
    options: Callable[[argparse.ArgumentParser], None] | None = None


class Parser(argparse.ArgumentParser):
    """Says a fault in one sentence, with the command that shows how it goes."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"memoryctl: {printable(message)}\ntry: {self.prog} --help\n")
        sys.exit(USAGE)


class _Page(argparse.RawDescriptionHelpFormatter):
    """A help page as wide as the terminal, but no wider than prose should be.

    Where it is not told the width, it imports shutil and with it three compressions, for each option.
    """

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS", "")) or PAGE_WIDTH
        except ValueError:
            columns = os.get_terminal_size(1).columns if os.isatty(1) else PAGE_WIDTH
        super().__init__(prog, width=min(columns, PAGE_WIDTH) - 2)


def build() -> Parser:
    """The whole parser; after parsing, `run` names the function of the command."""
    parser = Parser(
        prog="memoryctl",
        description=(
            "Looks after memoryd, which keeps a project's memory in MEMORY.md. Without a command it"
            " shows the status."
        ),
        epilog="example:\n  memoryctl\n\n`memoryctl COMMAND --help` explains a command.",
        formatter_class=_Page,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_const", const="version", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        # With a name given it lays out no usage line, for which it would import shutil.
        prog="memoryctl",
        metavar="COMMAND",
        dest="command",
        title="commands",
    )
    for command in COMMANDS:
        page = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.text,
            epilog=f"example:\n  {command.example}",
            formatter_class=_Page,
            allow_abbrev=False,
        )
        page.set_defaults(run=command.run)
        if command.options is not None:
            command.options(page)
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    """What was typed; where no command is named, it is the status. Exits on a fault or a help page."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        arguments = ["version", *arguments[1:]]
    elif not first or (first.startswith("-") and first not in ("-h", "--help")):
        arguments = [DEFAULT, *arguments]
    elif not first.startswith("-") and first not in names():
        build().error(_unknown(first))
    return build().parse_args(arguments)


def names() -> tuple[str, ...]:
    """All commands."""
    return tuple(command.name for command in COMMANDS)


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a typing error pays for it

    near = get_close_matches(name, names(), n=1)
    return f"no command `{name}`" + (f", perhaps `{near[0]}`" if near else "")


COMMANDS = (
    Command(
        "status",
        f"{_COMMANDS}:status",
        "the daemon, and what is wrong (the default)",
        "Shows first what is wrong and the command that mends it. Then the daemon, the ways in which\n"
        "it can ask a model, and each project: its status line and last event, the file's size\n"
        "against the limits, turns that wait for their save, and what sessions and saves used today.\n"
        "It never starts a daemon.",
        "memoryctl status --project my-app",
        options.status,
    ),
    Command(
        "log",
        f"{_COMMANDS}:log",
        "the last saves",
        "Lists saves, newest first: when, the run's id, of which project and session, how it ended,\n"
        "the lines added (+), removed (-) and replaced (~), topic files, the backend, tokens in and\n"
        "out, and the event. Without --project of all projects.",
        "memoryctl log --project -n 5",
        options.log,
    ),
    Command(
        "show",
        f"{_COMMANDS}:show",
        "one save in full",
        "Shows all of a run: times, backend, model, tokens, and every change that the reply asked for\n"
        "with what became of it, the reason where it was left out, and the person's words that it\n"
        "rests on. Without RUN the project's last one.",
        "memoryctl show 7c9f0e",
        options.show,
    ),
    Command(
        "memory",
        f"{_COMMANDS}:memory",
        "print MEMORY.md",
        "Prints the project's MEMORY.md as it stands.",
        "memoryctl memory > copy.md",
        options.asks,
    ),
    Command(
        "save",
        f"{_COMMANDS}:save",
        "save what is owed now",
        "Starts the saves of turns that wait, also of those that wait between two tries or for a login\n"
        "that was refused.",
        "memoryctl save",
        options.save,
    ),
    Command(
        "cancel",
        f"{_COMMANDS}:cancel",
        "cancel the save that runs",
        "Cancels the project's save while it waits for the model. Nothing is written, and the turn\n"
        "stays owed.",
        "memoryctl cancel",
        options.asks,
    ),
    Command(
        "pause",
        f"{_COMMANDS}:pause",
        "start no save for a while",
        "Starts no save, of all projects or of one, for a time or until `memoryctl resume`. Turns stay\n"
        "owed, sessions still get their memory.",
        "memoryctl pause --for 2h",
        options.pause,
    ),
    Command(
        "resume",
        f"{_COMMANDS}:resume",
        "end a pause",
        "Ends a pause; what became owed meanwhile is saved. A pause of one project is ended with the\n"
        "same --project.",
        "memoryctl resume",
        options.resume,
    ),
    Command(
        "off",
        f"{_COMMANDS}:off",
        "no memory for a project or a session",
        "From the next event on, the project of the directory (or one session) neither gets its memory\n"
        "nor is saved. The files stay.",
        "memoryctl off --session",
        options.switch,
    ),
    Command(
        "on",
        f"{_COMMANDS}:on",
        "memory again",
        "Takes `memoryctl off` back, from the next event on.",
        "memoryctl on --session",
        options.switch,
    ),
    Command(
        "start",
        f"{_LIFE}:start",
        "start the daemon",
        "Starts memoryd detached and waits until it answers. Where it runs already, that is said and\n"
        "all is well. Typed inside a coding session it passes none of the session's environment on\n"
        "but HOME, PATH, the language, the XDG folders and memoryd's own settings.",
        "memoryctl start",
    ),
    Command(
        "stop",
        f"{_LIFE}:stop",
        "stop the daemon",
        "Asks memoryd to end and waits for it. A running save is cancelled, its turn stays owed; a\n"
        "write that began is ended.",
        "memoryctl stop",
    ),
    Command(
        "restart",
        f"{_LIFE}:restart",
        "stop and start the daemon",
        "Stops memoryd where it runs, and starts it.",
        "memoryctl restart",
    ),
    Command(
        "apply",
        f"{_LOCAL}:apply",
        "apply a reply to a memory file, without a daemon",
        "Puts the memory file into its shape, applies the reply's changes and prints the new text; the\n"
        "event goes to stderr. No file is written. With --jsonl it reads one case per line,\n"
        '{"project", "memory", "reply", "typed"}, and answers each with one line.',
        "memoryctl apply MEMORY.md reply.txt > new.md",
        options.apply,
    ),
    Command(
        "plugin-dir",
        f"{_LOCAL}:plugin_dir",
        "print the folder of the plugin for Claude Code",
        "Brings the plugin up to date for this machine, with absolute paths of the interpreter and the\n"
        "socket, and prints its folder.",
        'claude --plugin-dir "$(memoryctl plugin-dir)"',
    ),
    Command(
        "config",
        f"{_LOCAL}:config",
        "show, find or check the settings",
        "Shows the settings that hold (those of the file, else the defaults), prints where the file is,\n"
        "or checks it and names the line of a fault.",
        "memoryctl config check",
        options.config,
    ),
    Command(
        "statusline",
        f"{_COMMANDS}:statusline",
        "the project's status line",
        "Prints the line of the project. With what Claude Code gives a status-line command on stdin it\n"
        "is that session's. --settings prints the entry for Claude Code's settings.json, whose command\n"
        "starts as quickly as a hook.",
        "memoryctl statusline --settings",
        options.statusline,
    ),
    Command(
        "logs",
        f"{_LIFE}:logs",
        "what the daemon wrote down",
        "Prints the last lines of the daemon's log. It holds lengths and names, never what a person\n"
        "wrote.",
        "memoryctl logs -f",
        options.logs,
    ),
    Command(
        "raw",
        f"{_COMMANDS}:raw",
        "one request as it is",
        "Sends one request to the daemon and prints the answer's body.",
        "memoryctl raw GET status",
        options.raw,
    ),
    Command(
        "version",
        f"{_COMMANDS}:version",
        "versions of memoryctl and the daemon",
        "Prints the version of memoryctl and, where it runs, of the daemon.",
        "memoryctl version",
        options.json,
    ),
    Command(
        "completion",
        f"{_LOCAL}:completion",
        "completion for a shell",
        "Prints the completion of memoryctl for bash or zsh.",
        'eval "$(memoryctl completion bash)"',
        options.completion,
    ),
    Command(
        "demo",
        f"{_LOCAL}:demo",
        "see it work: no account, no network",
        "Plays a recorded session through the real hooks, daemon and worker in a private folder, with\n"
        "a scripted model, and shows each step and the MEMORY.md that comes of it.",
        "memoryctl demo",
        options.demo,
    ),
)
"""In the order of the help page."""

"""The page of files: what lies where, with which mode, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.pages import source
from docs.pages.markdown import code, table
from docs.pages.markdown import page as whole
from memoryd import paths
from memoryd.core.memory import files
from memoryd.ctl import process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOME = "/home/you"
ENV = {"HOME": HOME}

OPENING = """\
All of it belongs to one user, and nothing of it is written outside of these places. Paths are those
without any setting; `XDG_STATE_HOME` and `XDG_CONFIG_HOME` move the folders of state and config,
[memory_root](settings.md#memory_root) moves the memory. `memoryctl status -v` and `memoryctl config
path` say where they are on a machine."""

MEMORY = """\
Plain Markdown, yours to read and edit at any time, also while a save runs. A file keeps its mode
and its line ends. Each may be a symbolic link to a file inside your home directory, and so may a
project's folder and the whole memory root."""

STATE = """\
A private directory (mode 0700); memoryd refuses to start where others could write to it or to a
directory above it. With no daemon running it can be deleted: owed turns, the history of saves and
the names of projects are then gone, the memory files stay."""

SOCKETS = """\
The socket is at `MEMORYD_SOCKET` where that is set, else at `$XDG_RUNTIME_DIR/memoryd.sock` where
that directory is private and yours, else in the state directory. A path of over 103 bytes, which no
system takes for a socket, is replaced by one in a private directory `/tmp/memoryd-<uid>/` whose
name follows from it."""


def page() -> str:
    """The page as Markdown."""
    return whole("Files", "`memoryd/paths.py` and the modules that own each file", _parts())


def _parts() -> Iterator[str]:
    state, root = paths.state_dir(ENV), paths.default_memory_root(ENV)
    yield OPENING
    yield f"## Memory: {_shown(root)}"
    yield MEMORY
    yield _table(_memory())
    yield f"## State: {_shown(state)}"
    yield STATE
    yield _table(_state(state))
    yield SOCKETS
    yield f"## Config: {_shown(paths.config_file(ENV).parent)}"
    yield _table(
        [(paths.config_file(ENV).name, "yours", "[Settings](settings.md). It never holds a key.")]
    )


def _memory() -> list[tuple[str, str, str]]:
    memory = source.constant("memoryd/core/memory/files.py", "MEMORY_FILE")
    temporary = source.constant("memoryd/adapters/memory_dir.py", "_TEMPORARY")
    return [
        ("<project>/", "0700", "The folder of a project; made with the first save."),
        (f"<project>/{memory}", "0600", "The memory that a session gets at its start."),
        (
            "<project>/history.md, <project>/*.md",
            "0600",
            "Topic files: what is worth keeping and not worth loading. Saves append to them and"
            " change nothing above.",
        ),
        (
            f"<project>/{files.BACKUP_FILE}",
            "0600",
            f"The text of `{memory}` before it was put into its four sections; older ones are"
            " numbered, `MEMORY.pre-migration-2.md` and so on.",
        ),
        (
            f"<project>/{files.FAILED_REPLY_FILE}",
            "0600",
            "The last reply that could not be read, secrets masked.",
        ),
        (
            f"<project>/{temporary}*.tmp",
            "as its target",
            "A new text for the moment before it takes its place; one that a killed daemon left"
            " is deleted at the next start.",
        ),
    ]


def _state(state: Path) -> list[tuple[str, str, str]]:
    ledger = source.constant("memoryd/daemon/app.py", "LEDGER_FILE")
    holder = source.constant("memoryd/daemon/instance.py", "HOLDER")
    refused = source.constant("memoryd/daemon/spool.py", "REFUSED")
    log = process.log_file(ENV).relative_to(state)
    spool = paths.spool_dir(state).name
    return [
        (
            f"{ledger}, {ledger}-wal, {ledger}-shm",
            "0600",
            "The ledger, in SQLite: projects, sessions, owed turns, the record of each save with"
            " its changes, and the texts before and after. Kept for"
            " [retention_days](settings.md#retention_days).",
        ),
        (
            f"{ledger}.damaged-*",
            "0600",
            "A ledger that was found damaged; moved aside, never deleted.",
        ),
        (
            f"{spool}/*.http",
            "0600, the folder 0700",
            "Events that a hook could not deliver, as they came and so with the prompts in them;"
            " deleted as soon as a daemon has read them.",
        ),
        (
            f"{spool}/{refused}/",
            "0700",
            "The last 20 such files that were no event or that failed three times.",
        ),
        (
            str(log),
            "0600",
            "The log of a daemon that `memoryctl start` started: at most 2 MB, and two older"
            " files of it.",
        ),
        ("plugin/claude_code/", "0700", "The plugin as `memoryctl plugin-dir` made it."),
        (paths.socket_path(ENV).name, "0600", "The socket, where it lies here."),
        (
            paths.control_path(state).name,
            "0600",
            "A second socket, by which memoryctl finds a daemon whose first socket was deleted.",
        ),
        (holder, "0600", "Which process holds the lock, for people; it decides nothing."),
    ]


def _table(rows: list[tuple[str, str, str]]) -> str:
    return table(
        ("File", "Mode", "What"),
        ((", ".join(map(code, name.split(", "))), mode, what) for name, mode, what in rows),
    )


def _shown(path: Path) -> str:
    return code(f"~{str(path).removeprefix(HOME)}")

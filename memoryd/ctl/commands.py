"""Commands that ask the daemon.

Owns which message a command sends and how its answer is put into words.
"""

from __future__ import annotations

import codecs
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memoryd import __version__, paths
from memoryd.core.text import plural
from memoryd.ctl.client import SaidNoError, decoded, is_utf8
from memoryd.ctl.main import NOT_RUNNING
from memoryd.ctl.options import HERE, THIS_SESSION
from memoryd.errors import MemorydError, NotRunningError
from memoryd.protocol import (
    GENERATION,
    Cancel,
    Done,
    GetLog,
    GetMemory,
    GetRun,
    GetStatus,
    GetStatusline,
    GetVersion,
    MemoryText,
    Pause,
    Resume,
    RunList,
    RunRecord,
    Save,
    Status,
    Statusline,
    SwitchOff,
    SwitchOn,
    Version,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from memoryd.ctl.screens import View
    from memoryd.ctl.shell import Shell
    from memoryd.protocol import Message

STDIN_LIMIT = 1.0
"""Seconds that the host's words on stdin are waited for: a script's stdin may never say anything."""

LINE_REFRESH = 5
"""Seconds between two looks of the host at the line: right after a turn no save has ended."""


ROOM_HINT = "df -h"

NOT_UTF8 = "the name of the directory that this was typed in is not UTF-8"


class NotTypedError(MemorydError):
    """What was typed does not say enough, and its surroundings neither."""

    def __init__(self, fact: str, hint: str) -> None:
        self.fact = fact
        self.hint = hint
        super().__init__(fact)

    def __str__(self) -> str:
        return self.fact


class Place(NamedTuple):
    """The project that is meant: by its name, else by the session or the directory typed in."""

    project: str = ""
    inside: str = ""
    cwd: str = ""


# ── reads ──────────────────────────────────────────────────────────────────────────────────────────


def status(typed: Namespace, shell: Shell) -> int:
    """The daemon at a glance; without a daemon, what is there instead."""
    try:
        body = _status_body(typed, shell)
    except NotRunningError as error:
        shell.complain(str(error), error.hint)
        if fault := _room_fault(shell, ""):
            shell.complain(fault, ROOM_HINT)
        if waiting := _spooled(shell):
            shell.note(f"{plural(waiting, 'event')} of sessions kept until it runs")
        return NOT_RUNNING
    if typed.json:
        shell.json(body)
        return 0
    from memoryd.ctl import screens  # noqa: PLC0415  --json needs none
    from memoryd.ctl.troubles import Trouble  # noqa: PLC0415

    found = decoded(body, Status)
    seen = []
    if fault := _room_fault(shell, found.memory_root):
        seen.append(Trouble(fault, ROOM_HINT))
    if not typed.project and not is_utf8(shell.directory):
        seen.append(Trouble(f"{NOT_UTF8}, so it can have no memory", tone="warn"))
    view = _view(shell)._replace(verbose=typed.verbose, seen=tuple(seen))
    shell.show(screens.status(found, view))
    return 0


def log(typed: Namespace, shell: Shell) -> int:
    """The last runs."""
    place = _place_if_asked(typed, shell)
    message = GetLog(**place._asdict(), limit=typed.limit, skipped=typed.skipped)
    body = shell.client.ask_raw(message)
    if typed.json:
        shell.json(body)
        return 0
    from memoryd.ctl import screens  # noqa: PLC0415  --json needs none

    shell.show(screens.log(decoded(body, RunList).runs, _view(shell)))
    return 0


def show(typed: Namespace, shell: Shell) -> int:
    """One run."""
    place = Place() if typed.id else _place(typed, shell)
    body = shell.client.ask_raw(GetRun(run=typed.id, **place._asdict()))
    if typed.json:
        shell.json(body)
        return 0
    from memoryd.ctl import screens  # noqa: PLC0415  --json needs none

    shell.show(screens.run(decoded(body, RunRecord), _view(shell)))
    return 0


def memory(typed: Namespace, shell: Shell) -> int:
    """MEMORY.md."""
    place = _place(typed, shell)
    body = shell.client.ask_raw(GetMemory(**place._asdict()))
    if typed.json:
        shell.json(body)
        return 0
    found = decoded(body, MemoryText)
    if found.text is None:
        shell.note(f"{found.project}: no MEMORY.md yet ({found.path})")
    else:
        shell.text(found.text)
    return 0


def statusline(typed: Namespace, shell: Shell) -> int:
    """The project's status line; with the host's words on stdin, its session's."""
    if typed.settings:
        shell.json(_statusline_settings(shell))
        return 0
    asked = b"" if typed.project or typed.json else _said_on_stdin(shell)
    if asked:
        return _statusline_of_session(asked, shell)
    place = _place(typed, shell)
    message = GetStatusline(**place._asdict(), colour=shell.colour)
    body = shell.client.ask_raw(message)
    if typed.json:
        shell.json(body)
        return 0
    from memoryd.ctl.render import harmless  # noqa: PLC0415  --json needs none

    if text := decoded(body, Statusline).text:
        shell.out.write(f"{harmless(text)}\n")
    return 0


def version(typed: Namespace, shell: Shell) -> int:
    """Both versions; no daemon is no fault here."""
    if typed.json:
        shell.json(shell.client.ask_raw(GetVersion()))
        return 0
    shell.say(f"memoryctl {__version__}, protocol {GENERATION}")
    try:
        found = shell.client.ask(GetVersion(), Version)
    except NotRunningError:
        shell.say("memoryd is not running")
    else:
        shell.say(f"memoryd {found.version}, protocol {found.generation}, pid {found.pid}")
    return 0


def raw(typed: Namespace, shell: Shell) -> int:
    """One request as it is; the answer as it comes."""
    route = typed.route
    target = route if route.startswith("/") else f"/v{GENERATION}/{route}"
    body = shell.stdin.read() if typed.body == "-" else typed.body.encode(errors="surrogateescape")
    from memoryd.ctl.shell import escaped  # noqa: PLC0415  only here

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    last = ""
    for chunk in shell.client.stream(typed.method, target, body):
        last = decoder.decode(chunk)
        shell.out.write(escaped(last))
        shell.out.flush()
    if last and not last.endswith("\n"):
        shell.out.write("\n")
    return 0


# ── commands ───────────────────────────────────────────────────────────────────────────────────────


def save(typed: Namespace, shell: Shell) -> int:
    """What is owed starts now."""
    session = _session(typed, shell)
    place = _place(typed, shell)
    return _do(Save(**place._asdict(), session=session), typed, shell)


def cancel(typed: Namespace, shell: Shell) -> int:
    """The running save stops."""
    place = _place(typed, shell)
    return _do(Cancel(**place._asdict()), typed, shell)


def pause(typed: Namespace, shell: Shell) -> int:
    """No save starts."""
    place = _place_if_asked(typed, shell)
    message = Pause(**place._asdict(), seconds=typed.seconds)
    return _do(message, typed, shell)


def resume(typed: Namespace, shell: Shell) -> int:
    """Saves start again."""
    place = _place_if_asked(typed, shell)
    return _do(Resume(**place._asdict()), typed, shell)


def off(typed: Namespace, shell: Shell) -> int:
    """No memory from the next event on."""
    session, place = _switched(typed, shell)
    return _do(SwitchOff(session=session, **place._asdict()), typed, shell)


def on(typed: Namespace, shell: Shell) -> int:
    """Memory from the next event on."""
    session, place = _switched(typed, shell)
    return _do(SwitchOn(session=session, **place._asdict()), typed, shell)


def _do(message: Message, typed: Namespace, shell: Shell) -> int:
    body = shell.client.ask_raw(message)
    if typed.json:
        shell.json(body)
    else:
        shell.say(decoded(body, Done).sentence)
    return 0


# ── which project, which session ───────────────────────────────────────────────────────────────────


def _place(typed: Namespace, shell: Shell) -> Place:
    if typed.project and typed.project != HERE:
        return Place(project=typed.project)
    directory = _directory(shell)
    if not directory and not shell.session:
        fact = NOT_UTF8 if shell.directory else "the directory that this was typed in is gone"
        raise NotTypedError(fact, f"memoryctl {typed.command} --project NAME")
    return Place(inside=shell.session, cwd=directory)


def _directory(shell: Shell) -> str:
    """Where it was typed; empty where no message can say it."""
    return shell.directory if is_utf8(shell.directory) else ""


def _place_if_asked(typed: Namespace, shell: Shell) -> Place:
    """Without --project: all projects."""
    return Place() if typed.project is None else _place(typed, shell)


def _session(typed: Namespace, shell: Shell) -> str:
    if typed.session != THIS_SESSION:
        return str(typed.session)
    if not shell.session:
        hint = f"memoryctl {typed.command} --session ID"
        raise NotTypedError("this was not typed inside a coding session", hint)
    return shell.session


def _switched(typed: Namespace, shell: Shell) -> tuple[str, Place]:
    session = _session(typed, shell)
    return session, Place() if session else _place(typed, shell)


def _status_body(typed: Namespace, shell: Shell) -> bytes:
    place = Place(typed.project) if typed.project else Place("", shell.session, _directory(shell))
    try:
        return shell.client.ask_raw(GetStatus(**place._asdict()))
    except SaidNoError as error:
        # Typed where no project can be, such as `/`: the daemon's state is worth showing all the same.
        if typed.project or error.problem.code != "no_project":
            raise
        return shell.client.ask_raw(GetStatus())


def _view(shell: Shell) -> View:
    from memoryd.ctl.screens import View  # noqa: PLC0415  --json needs none

    return View(shell.now, str(shell.home), compact=shell.terminal)


def _room_fault(shell: Shell, memory_root: str) -> str:
    """That a disk which memoryd writes to is full: what it then can't say, the ledger can't keep."""
    from memoryd.ctl.process import room_fault  # noqa: PLC0415  only for the status

    folders = [paths.state_dir(shell.env), *([Path(memory_root)] if memory_root else [])]
    return next(filter(None, map(room_fault, folders)), "")


def _spooled(shell: Shell) -> int:
    """Events that shims kept for the daemon."""
    try:
        return len(list(paths.spool_dir(paths.state_dir(shell.env)).glob("*.http")))
    except OSError:
        return 0


# ── the host's status line ─────────────────────────────────────────────────────────────────────────


def _statusline_of_session(asked: bytes, shell: Shell) -> int:
    """As a hook: without a daemon it says nothing, `memoryctl status` does."""
    from memoryd.ctl.render import harmless  # noqa: PLC0415  only here

    headers = {"memoryd-env": f"no_color={b'1'.hex()}"} if shell.env.get("NO_COLOR") else {}
    try:
        found = shell.client.exchange("POST", f"/v{GENERATION}/statusline", asked, headers)
    except MemorydError:
        return 0
    shell.out.write(harmless(found.decode("utf-8", "replace").rstrip("\n")) + "\n" if found else "")
    return 0


def _said_on_stdin(shell: Shell) -> bytes:
    """A JSON object on stdin; empty where there is none within the time limit."""
    import os  # noqa: PLC0415  only here
    import select  # noqa: PLC0415

    if shell.stdin.isatty():
        return b""
    said = b""
    limit = time.monotonic() + STDIN_LIMIT
    while not said.rstrip().endswith(b"}"):
        rest = max(0.0, limit - time.monotonic())
        if not select.select([shell.stdin], [], [], rest)[0]:
            break
        chunk = os.read(shell.stdin.fileno(), 65536)
        if not chunk:
            break
        said += chunk
    return said if said.lstrip().startswith(b"{") else b""


def _statusline_settings(shell: Shell) -> bytes:
    """The entry of the host's settings: the shim itself, since it runs again and again."""
    import json  # noqa: PLC0415  only here
    import shlex  # noqa: PLC0415

    from memoryd.ctl import plugin  # noqa: PLC0415

    plugin.plugin_dir(shell.env)
    words = plugin.shim_command(plugin.places_for(shell.env), "statusline")
    line = {"type": "command", "command": shlex.join(words), "refreshInterval": LINE_REFRESH}
    entry = {"statusLine": line}
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogateescape")

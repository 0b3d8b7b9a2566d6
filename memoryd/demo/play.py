"""`memoryctl demo`: a recorded session through the real parts, told step by step.

Owns the story and its time limits. Everything it tells comes from the parts as they work; only the
session and the model's reply were recorded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from memoryd.core.text import cut, plural
from memoryd.ctl import plugin, process
from memoryd.ctl.client import Client
from memoryd.ctl.words import age, number
from memoryd.demo.hooks import Hooks
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.recording import Row, as_event, recorded, scripted_reply
from memoryd.demo.script import Answer, Text, Tokens
from memoryd.demo.stage import PROJECT, stage
from memoryd.demo.told import Teller
from memoryd.errors import MemorydError
from memoryd.protocol import (
    EventShown,
    Follow,
    GetMemory,
    GetRun,
    GetStatusline,
    MemoryText,
    RunChanged,
    RunRecord,
    Statusline,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memoryd.ctl.shell import Shell
    from memoryd.demo.hooks import Ran
    from memoryd.demo.recording import Event
    from memoryd.demo.script import Call
    from memoryd.demo.stage import Stage

SAVE_LIMIT = 60.0
"""Seconds for the whole save; on a busy machine the worker takes ten of them to start."""

PROMPT_SHOWN = 60
"""Characters of a prompt."""

CHARACTERS_PER_TOKEN = 4

_STATES = {
    "gate": "a turn is owed: is there something to read?",
    "fork": "the worker asks the model what to remember",
    "read": "the reply is read",
    "apply": "its changes are checked and applied",
    "commit": "the files are written",
}


class DemoError(MemorydError):
    """A step went wrong, or took longer than it may."""

    hint = "memoryctl demo --keep"

    def __init__(self, fact: str) -> None:
        self.fact = fact
        super().__init__(fact)

    def __str__(self) -> str:
        return f"the demo failed: {self.fact}"


class Followed(NamedTuple):
    """A line of the daemon's stream, or the error that ended it."""

    line: RunChanged | EventShown | None
    error: MemorydError | None = None


def play(shell: Shell, *, keep: bool = False) -> int:
    """Tell the whole story; raises DemoError where a part of it does not work."""
    tell = Teller(shell)
    tell.say(
        "memoryd demo: a recorded session, the real hooks, daemon and worker, a scripted model"
    )
    try:
        _play(tell, shell.env, keep=keep)
    except DemoError:
        raise
    except MemorydError as error:
        raise DemoError(str(error)) from error
    return 0


def _play(tell: Teller, env: Mapping[str, str], *, keep: bool) -> None:
    with ScriptedApi(_answer) as api, stage(env, keep=keep) as place:
        tell.aside(f"no account, no network; in {place.folder}, {_fate(keep=keep)}")
        place.configure(api.url)
        _Play(tell, place, api).all()
        tell.next_steps(_next_steps(place, keep=keep))


class _Play:
    """The story in its order; `tell` shows it as it happens."""

    def __init__(self, tell: Teller, place: Stage, api: ScriptedApi) -> None:
        self._tell = tell
        self._place = place
        self._api = api
        self._client = Client(place.env)
        self._lines: SimpleQueue[Followed] = SimpleQueue()

    def all(self) -> None:
        hooks = self._parts()
        self._tell.heading(f"A session in the project {PROJECT}")
        start = self._first_session(hooks)
        self._tell.heading("The next session")
        self._second_session(hooks, start)

    def _parts(self) -> Hooks:
        """Everything that has to run or to lie there beforehand."""
        folder = plugin.plugin_dir(self._place.env)
        hooks = Hooks(folder, self._place.host_env, self._place.project)
        self._tell.step("plugin", f"rendered: {hooks.count} hooks for {hooks.events} events")
        self._tell.step("model", f"a scripted Messages API on {self._api.url}")
        found = process.start(self._place.env)
        self._tell.step("daemon", f"memoryd {found.version.version}, process {found.version.pid}")
        Thread(target=self._follow, daemon=True).start()
        return hooks

    def _first_session(self, hooks: Hooks) -> Event:
        """The recorded session; returns its first event."""
        steps = list(recorded(home=self._place.home, project=self._place.project))
        events = [step for step in steps if not isinstance(step, Row)]
        for step in steps:
            if isinstance(step, Row):
                _append(Path(events[0].transcript_path), step.line)
                continue
            self._hook(hooks, step)
            if step.hook_event_name == "Stop":
                self._save()
        return events[0]

    def _second_session(self, hooks: Hooks, first: Event) -> None:
        session = str(uuid4())
        event = as_event(first.line.replace(first.session_id.encode(), session.encode()))
        ran = self._hook(hooks, event)
        memory = self._client.ask(GetMemory(project=PROJECT), MemoryText)
        if memory.text is None or memory.text.strip() not in ran.context:
            raise DemoError("the next session did not get the memory")

    def _hook(self, hooks: Hooks, event: Event) -> Ran:
        try:
            ran = hooks.run(event)
        except subprocess.TimeoutExpired as error:
            fact = f"a hook of {event.hook_event_name} took over {error.timeout:g} s"
            raise DemoError(fact) from error
        if ran.failed:
            raise DemoError(f"{plural(ran.failed, 'hook')} of {event.hook_event_name} failed")
        silent = "" if ran.context else ", nothing printed"
        took = f"{plural(ran.hooks, 'hook')}, {ran.seconds * 1000:.0f} ms{silent}"
        self._tell.step(event.hook_event_name, f"{_seen(event)}{took}")
        if ran.context:
            self._tell.aside("the session gets:")
            self._tell.block(ran.context)
        return ran

    # ── the save ───────────────────────────────────────────────────────────────────────────────────

    def _save(self) -> None:
        """Tell each state of the save; then what it wrote."""
        limit = time.monotonic() + SAVE_LIMIT
        run = self._next_run(limit)
        while not run.ended_at:
            self._state(run)
            run = self._next_run(limit)
        if run.state != "done":
            raise DemoError(f"the save ended with {run.state}: {run.failure or run.status}")
        self._tell.step("save", run.event or run.status)
        self._result(run)

    def _state(self, run: RunRecord) -> None:
        words = _STATES.get(run.state, run.state)
        if run.state == "fork" and run.backend:
            words += f" ({run.backend})"
        self._tell.step("save", words)
        if run.state == "fork":
            self._status_line()

    def _result(self, run: RunRecord) -> None:
        whole = self._client.ask(GetRun(run=run.id), RunRecord)
        used = whole.usage
        took = age(whole.ended_at - whole.started_at)
        self._tell.aside(
            f"{took}; {whole.model}: {number(used.input)} tokens in, {number(used.output)} out"
        )
        for op in whole.ops:
            reason = f" ({op.reason})" if op.reason else ""
            self._tell.change(op.outcome, f"{op.text or op.line}{reason}")
        memory = self._client.ask(GetMemory(project=PROJECT), MemoryText)
        self._tell.heading(self._shown(memory.path))
        self._tell.block(memory.text or "")
        for topic in memory.topics:
            file = Path(memory.path).with_name(topic)
            self._tell.heading(self._shown(str(file)))
            self._tell.block(file.read_text(encoding="utf-8"))
        self._tell.heading("The status line")
        self._status_line()
        self._tell.heading("The session goes on, and ends")

    def _status_line(self) -> None:
        message = GetStatusline(project=PROJECT, cwd=str(self._place.project))
        found = self._client.ask(message, Statusline)
        self._tell.status_line(found.text)

    def _next_run(self, limit: float) -> RunRecord:
        while True:
            try:
                found = self._lines.get(timeout=max(0.0, limit - time.monotonic()))
            except Empty:
                word = process.last_word(process.log_file(self._place.env), 0).sentence
                fact = f"no save within {SAVE_LIMIT:g} s; the daemon's last word: {word or 'none'}"
                raise DemoError(fact) from None
            if found.error is not None:
                raise found.error
            if isinstance(found.line, RunChanged):
                return found.line.run

    def _follow(self) -> None:
        """In a thread of its own: the stream is silent for as long as it likes."""
        try:
            for text in self._client.lines(Follow()):
                self._lines.put(Followed(msgspec.json.decode(text, type=RunChanged | EventShown)))
        except MemorydError as error:
            self._lines.put(Followed(None, error))

    def _shown(self, path: str) -> str:
        return path.replace(str(self._place.home), "~", 1)


def _answer(call: Call) -> Answer:
    """The recorded reply; its usage follows from the sizes."""
    reply = scripted_reply()
    tokens = Tokens(
        input=len(call.data) // CHARACTERS_PER_TOKEN, output=len(reply) // CHARACTERS_PER_TOKEN
    )
    return Answer((Text(reply),), tokens=tokens)


def _append(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("ab") as transcript:
        transcript.write(data)


def _seen(event: Event) -> str:
    """What is worth showing of an event, before what its hooks took."""
    if event.prompt:
        return f"“{cut(event.prompt, PROMPT_SHOWN)}”; "
    tools = ", ".join(tool.tool_name for tool in event.tool_calls)
    return f"{tools}; " if tools else ""


def _fate(*, keep: bool) -> str:
    return "which stays" if keep else "which is removed at the end"


def _memoryctl() -> str:
    """How memoryctl can be typed here: by its name, or as it was typed where that is not on the PATH."""
    typed, found = Path(sys.argv[0]), shutil.which("memoryctl")
    if typed.name != "memoryctl" or (found is not None and Path(found).samefile(typed)):
        return "memoryctl"
    here = Path.cwd()
    return str(typed.absolute().relative_to(here) if here in typed.absolute().parents else typed)


def _next_steps(place: Stage, *, keep: bool) -> list[tuple[str, str]]:
    typed = _memoryctl()
    steps = [
        (f"{typed} start", "start the daemon for real"),
        (f'claude --plugin-dir "$({typed} plugin-dir)"', "work with it"),
        (typed, "see what it does"),
    ]
    if keep:
        steps.append((f"ls -R {place.folder}", "look at what the demo left"))
    return steps

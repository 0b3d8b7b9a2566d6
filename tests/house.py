"""A private house for the real daemon: its own home, socket, projects, and a scripted Messages API.

Events go through the rendered plugin's own command lines, as the host would run them. Everything is below
one short temporary directory; the daemon is ended by its process, never by a name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from transcripts import Records
from wire import short_dir

from memoryd.ctl import plugin
from memoryd.ctl.client import Client
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import Script, text
from memoryd.errors import NotRunningError
from memoryd.protocol import (
    GetLog,
    GetRun,
    GetStatus,
    GetVersion,
    ProjectStatus,
    RunList,
    RunRecord,
    Status,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memoryd.demo.script import Reply

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[1]
MADE_UP_KEY = "sk-made-up-for-a-test"
LIMIT = 60.0
"""Seconds after which a test that waits for something gives up."""


def saying(*ops: Mapping[str, str], topics: Sequence[Mapping[str, str]] = ()) -> Reply:
    """A fork's reply with these ops."""
    return text(json.dumps({"ops": list(ops), "topics": list(topics)}))


def adding(fact: str, section: str = "Active Warnings") -> Mapping[str, str]:
    """An op that adds a bullet."""
    return {"op": "add", "section": section, "text": fact}


class House:
    """Use `house()`; `api.script` gives the forks' replies."""

    def __init__(self, root: Path, api: ScriptedApi) -> None:
        self.root = root
        self.api = api
        self.home = root / "home"
        self.memory_root = self.home / ".cli-tweaks" / "memory"
        self.env = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(root / "run"),
            "PYTHONPATH": f"{REPOSITORY}",
            "ANTHROPIC_API_KEY": MADE_UP_KEY,
            "ANTHROPIC_BASE_URL": api.url,
        }
        for path in (self.home, root / "run", self.home / ".config" / "memoryd"):
            path.mkdir(mode=0o700, parents=True)
        self.client = Client(self.env)
        self.process: subprocess.Popen[bytes] | None = None
        self._hooks: dict[str, list[list[str]]] = {}

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "memoryd"

    @property
    def log(self) -> str:
        """What the daemon wrote to stderr."""
        return (self.root / "stderr").read_text(errors="replace")

    def configure(self, toml: str) -> None:
        """Write the config file."""
        (self.home / ".config" / "memoryd" / "config.toml").write_text(toml)

    def start(self, **env: str) -> None:
        """Start the daemon and wait until it answers."""
        with (self.root / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "memoryd"],
                env={**self.env, **env},
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        self.wait(self._answers)

    def kill(self) -> None:
        """End the daemon by SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT)

    def stop(self) -> int:
        """End the daemon by SIGTERM; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(LIMIT)

    @contextmanager
    def bystander(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process that does nothing until it is killed: a client's, for its pid."""
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def project(self, name: str = "api") -> Path:
        """A git repository."""
        path = self.home / "work" / name
        path.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", path], check=True, env=self.env)
        return path

    def memory(self, project: str = "api", file: str = "MEMORY.md") -> str:
        """A memory file's text, empty where there is none."""
        path = self.memory_root / project / file
        return path.read_bytes().decode() if path.exists() else ""

    def session(self, directory: Path, **marks: str) -> Session:
        """A session that is not started yet."""
        return Session(self, directory, str(uuid4()), marks)

    def hook(self, event: str) -> list[list[str]]:
        """The command lines of an event as the plugin registers them."""
        if not self._hooks:
            folder = plugin.plugin_dir(self.env)
            registered = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]
            self._hooks = {
                name: [
                    [hook["command"], *hook["args"]] for group in groups for hook in group["hooks"]
                ]
                for name, groups in registered.items()
            }
        return self._hooks[event]

    def status(self, project: Path | None = None) -> Status:
        return self.client.ask(GetStatus(cwd=str(project) if project else ""), Status)

    def project_status(self, project: Path) -> ProjectStatus:
        return self.status(project).projects[0]

    def runs(self, *, skipped: bool = False) -> list[RunRecord]:
        """All runs, oldest first."""
        return self.client.ask(GetLog(limit=1000, skipped=skipped), RunList).runs[::-1]

    def run(self, id: str) -> RunRecord:  # noqa: A002
        return self.client.ask(GetRun(run=id), RunRecord)

    def wait(self, found: Callable[[], T], limit: float = LIMIT) -> T:
        """The first truthy value of `found`; looks again every few milliseconds."""
        end = time.monotonic() + limit
        while not (value := self._tried(found)):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {limit:g} s; the daemon said:\n{self.log[-2000:]}")
            assert self.process is not None
            with suppress(subprocess.TimeoutExpired):
                code = self.process.wait(0.01)
                raise AssertionError(f"the daemon ended with {code}:\n{self.log[-12000:]}")
        return value

    def _tried(self, found: Callable[[], T]) -> T | None:
        with suppress(NotRunningError):
            return found()
        return None

    def wait_saved(self, count: int = 1) -> list[RunRecord]:
        """All runs once so many have ended."""
        self.wait(lambda: sum(1 for run in self.runs() if run.ended_at) >= count)
        return self.runs()

    def wait_skipped(self, count: int = 1) -> None:
        """Until so many turns were found to hold nothing that is worth a save."""

        def skipped() -> int:
            return sum(1 for run in self.runs(skipped=True) if run.state == "skipped")

        self.wait(lambda: skipped() >= count)

    def wait_idle(self, project: Path) -> ProjectStatus:
        """The project once it owes nothing and saves nothing."""

        def idle() -> ProjectStatus | None:
            found = self.project_status(project)
            return found if not found.owed and found.running is None else None

        found = self.wait(idle)
        assert found is not None
        return found

    def _answers(self) -> bool:
        return bool(self.client.ask(GetVersion(), Version).pid)


@dataclass(frozen=True, slots=True)
class Printed:
    """What a hook did."""

    code: int
    out: bytes
    err: bytes

    @property
    def context(self) -> str:
        """The text that it puts into the session."""
        if not self.out:
            return ""
        found = json.loads(self.out)["hookSpecificOutput"]
        assert found["hookEventName"] == "SessionStart"
        return str(found["additionalContext"])


class Session:
    """A session of the host, as its hooks and its transcript show it."""

    def __init__(self, house: House, directory: Path, id: str, marks: dict[str, str]) -> None:  # noqa: A002
        self.house = house
        self.directory = directory
        self.id = id
        self.records = Records()
        self.prompt_id = ""
        config = house.home / ".claude"
        slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(directory))
        self.transcript = config / "projects" / slug / f"{id}.jsonl"
        self.env = {
            "HOME": house.env["HOME"],
            "PATH": house.env["PATH"],
            "CLAUDE_PROJECT_DIR": str(directory),
            "CLAUDE_CODE_ENTRYPOINT": "cli",
            "CLAUDE_CODE_SESSION_ATTENDED": "1",
            **marks,
        }

    def start(self, source: str = "startup") -> str:
        """SessionStart: what all its hooks bring, in the order in which their processes ended."""
        body = self._body("SessionStart", source=source)
        processes = [self._spawn(command, body) for command in self.house.hook("SessionStart")]
        ended = [_printed(process) for process in _in_order_of_exit(processes)]
        return "".join(printed.context for printed in ended)

    def prompt(self, said: str, *, record: bool = True, **marks: Any) -> None:
        """A person's prompt, in the transcript too."""
        self.prompt_id = str(uuid4())
        self.fire("UserPromptSubmit", prompt=said)
        if record:
            self.records.human(said, promptId=self.prompt_id, **marks)
            self.write()

    def tool(self, name: str = "Bash", result: str = "done", **given: str) -> None:
        """A tool call and its result."""
        id_ = f"toolu_{uuid4().hex[:8]}"
        self.records.call(id_, name, **given)
        self.records.result(id_, result)
        self.write()
        self.fire("PostToolBatch", tool_calls=[{"tool_name": name, "tool_use_id": id_}])

    def answer(self, said: str = "Done.", **fields: Any) -> None:
        """The turn ends with an answer."""
        self.records.model(said)
        self.write()
        self.fire("Stop", stop_hook_active=False, last_assistant_message=said, **fields)

    def turn(self, said: str, answer: str = "Done.") -> None:
        """A prompt and its answer."""
        self.prompt(said)
        self.answer(answer)

    def end(self, reason: str = "other") -> None:
        self.fire("SessionEnd", reason=reason)

    def fire(self, event: str, **fields: Any) -> Printed:
        """One event through its registered hook; it has to be silent and fine."""
        (command,) = self.house.hook(event)
        printed = _printed(self._spawn(command, self._body(event, **fields)))
        assert printed == Printed(0, b"", b"")
        return printed

    def write(self) -> None:
        """Append what the transcript file lacks, as the host does: a reader never sees it empty."""
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("ab") as file:
            file.write(self.records.data[file.tell() :])

    def _body(self, event: str, **fields: Any) -> bytes:
        common = {
            "session_id": self.id,
            "transcript_path": str(self.transcript),
            "cwd": str(self.directory),
            "hook_event_name": event,
            **({"prompt_id": self.prompt_id} if self.prompt_id else {}),
        }
        return json.dumps({**common, **fields}).encode()

    def _spawn(self, command: list[str], body: bytes) -> subprocess.Popen[bytes]:
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                env=self.env,
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(read)
        with os.fdopen(write, "wb") as stdin, suppress(BrokenPipeError):
            stdin.write(body)
        return process


def _in_order_of_exit(
    processes: list[subprocess.Popen[bytes]],
) -> Iterator[subprocess.Popen[bytes]]:
    """As they end; told by the kernel, so that two that end at once keep their order."""
    waiting = {process.pid: process for process in processes}
    while waiting:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert found is not None
        process = waiting.pop(found.si_pid, None)
        if process is None:
            os.waitid(os.P_PID, found.si_pid, os.WEXITED)
            continue
        process.wait()
        yield process


def _printed(process: subprocess.Popen[bytes]) -> Printed:
    out, err = process.communicate(timeout=LIMIT)
    return Printed(process.returncode, out, err)


@contextmanager
def house(script: Callable[[Any], Reply] | None = None, **env: str) -> Iterator[House]:
    """A house whose daemon runs; nothing of it is left at the end."""
    with short_dir() as root, ScriptedApi(script or Script(saying())) as api:
        made = House(root, api)
        made.env |= env
        try:
            made.start()
            yield made
        finally:
            if made.process is not None and made.process.poll() is None:
                made.kill()


__all__ = ["House", "Self", "Session", "adding", "house", "saying"]

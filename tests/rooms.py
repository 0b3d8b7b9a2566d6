"""The daemon's inner rooms without socket, process or model: on a directory, with a clock to turn.

A `Home` outlives its daemons, so that a test can kill one and start the next. What is real: the
ledger and its thread, the memory files, the transcripts, git's files, the watcher. The model is
tests/fake_forks.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from fake_forks import FakeBackend, FakeChooser
from transcripts import Records
from wire import advance, settle

from memoryd import config
from memoryd.adapters.git import GitFiles
from memoryd.adapters.ledger import Ledger
from memoryd.adapters.ledger_thread import LedgerThread
from memoryd.adapters.memory_dir import MemoryFiles
from memoryd.adapters.transcript_bytes import size_of
from memoryd.adapters.transcript_file import TranscriptFiles
from memoryd.adapters.watcher import DirectoryWatcher
from memoryd.daemon import app
from memoryd.daemon.backlog import Backlog
from memoryd.daemon.caller import Caller, Peer
from memoryd.daemon.handlers.admin import AdminHandlers
from memoryd.daemon.handlers.memory import MemoryHandlers
from memoryd.daemon.handlers.turns import TurnHandlers
from memoryd.daemon.holds import Holds
from memoryd.daemon.loads import Loads
from memoryd.daemon.memories import Memories
from memoryd.daemon.overview import Overview
from memoryd.daemon.places import Places
from memoryd.daemon.projects import Projects
from memoryd.daemon.runs import Runs
from memoryd.daemon.sessions import Sessions
from memoryd.daemon.settings import LiveSettings
from memoryd.daemon.silence import Silence
from memoryd.daemon.standing import Standing
from memoryd.daemon.unwritten import Unwritten
from memoryd.daemon.work import SaveWork
from memoryd.ports import ForkReply
from memoryd.protocol import (
    LOAD_PARTS,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ShimHeaders,
    ToolsRan,
    TurnEnded,
    TurnFailed,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from memoryd import ports
    from memoryd.config import Config
    from memoryd.daemon.dispatch import RawAnswer
    from memoryd.ports import ForkRequest, Owed, SessionRow
    from memoryd.protocol import HookEvent, Message, ProjectStatus, RunRecord

BASE = 1_700_000_000.0
"""Unix seconds at which every test begins: a Tuesday, 22:13:20 UTC."""

LIMIT = 60.0
"""Real seconds after which a test that waits gives up."""

FACT = re.compile(r"FACT-\d+")


class TurnedClock:
    """Implements ports.Clock on the time of the running loop, which tests turn on by `advance`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    def now(self) -> float:
        return BASE + self.monotonic()

    def monotonic(self) -> float:
        return self._loop.time() - self._start

    def hhmm(self, at: float) -> str:
        return time.strftime("%H:%M", time.gmtime(at))

    def day(self, at: float) -> str:
        return time.strftime("%m-%d", time.gmtime(at))

    def day_start(self, at: float) -> float:
        return at - at % 86_400


# ── what a model says ──────────────────────────────────────────────────────────────────────────────


def adding(text: str, section: str = "Active Warnings", **more: str) -> dict[str, str]:
    return {"op": "add", "section": section, "text": text, **more}


def saying(*ops: dict[str, str], topics: dict[str, str] | None = None, **more: Any) -> ForkReply:
    """A reply with these ops, and appends by file name."""
    appends = [{"file": file, "append": text} for file, text in (topics or {}).items()]
    return ForkReply(json.dumps({"ops": list(ops), "topics": appends}), "fake-model", **more)


def learning(request: ForkRequest) -> ForkReply:
    """A model that remembers each `FACT-1` that the conversation names."""
    facts = dict.fromkeys(FACT.findall("\n".join(request.conversation)))
    return saying(*(adding(f"{fact} holds.") for fact in facts))


@contextmanager
def quick_root() -> Iterator[Path]:
    """A private folder, in memory where there is such a one: a sync of the disk is free there."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


# ── a person's machine ─────────────────────────────────────────────────────────────────────────────


class Home:
    """A person's directories and the model behind them; `daemon()` runs one daemon after another."""

    def __init__(self, root: Path, backend: FakeBackend | None = None) -> None:
        self.root = root
        self.home = root / "home"
        self.claude = self.home / ".claude"
        self.memory_root = self.home / ".cli-tweaks" / "memory"
        self.state = self.home / ".local" / "state" / "memoryd"
        self.env = {"HOME": str(self.home)}
        self.config_file = self.home / ".config" / "memoryd" / "config.toml"
        self.backend = backend or FakeBackend(learning)
        self.chooser: ports.Chooser = FakeChooser(self.backend)
        self.files: ports.MemoryDir = MemoryFiles(self.home)
        self.clock = TurnedClock()
        self.reachable = True
        """Whether there is a network."""
        self.at: Daemon
        for path in (self.state, self.config_file.parent):
            path.mkdir(mode=0o700, parents=True)

    def configure(self, toml: str) -> None:
        """Write the config file, in one step as editors do."""
        fresh = self.config_file.with_suffix(".new")
        fresh.write_text(toml)
        fresh.rename(self.config_file)

    def project(self, name: str = "api") -> Path:
        """A directory to work in."""
        path = self.home / "work" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def repository(self, name: str = "api", origin: str = "") -> Path:
        """A git repository with one commit."""
        path = self.project(name)
        _git(path, "init", "-q")
        _git(path, "commit", "-q", "--allow-empty", "-m", "first")
        if origin:
            _git(path, "remote", "add", "origin", origin)
        return path

    def worktree(self, repository: Path, name: str = "linked") -> Path:
        """A linked worktree beside the repository."""
        path = repository.parent / name
        _git(repository, "worktree", "add", "-q", "--detach", str(path))
        return path

    def memory(self, project: str = "api", file: str = "MEMORY.md") -> str:
        """A memory file's text, empty where there is none."""
        path = self.memory_root / project / file
        return path.read_bytes().decode() if path.exists() else ""

    def remember(self, text: str, project: str = "api", file: str = "MEMORY.md") -> Path:
        """Put a memory file there, as a person does."""
        path = self.memory_root / project / file
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def left(self, project: str = "api") -> list[str]:
        """The names in a project's memory directory."""
        return sorted(path.name for path in (self.memory_root / project).iterdir())

    def talk(self, directory: Path | None = None, session: str = "s1", **shim: Any) -> Talk:
        """A session that has not started yet."""
        return Talk(self, directory or self.project(), session, shim)

    def threaded(self, ledger: Ledger) -> LedgerThread:
        return LedgerThread(ledger)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[Daemon]:
        """A daemon's rooms at work, until the block ends."""
        opened = Ledger.open(self.state / "ledger.sqlite3")
        failed: Exception | None = None
        async with AsyncExitStack() as stack:
            ledger = await stack.enter_async_context(self.threaded(opened.ledger))
            self.at = Daemon(self, self.seen(ledger))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            await self.at.begin(tasks)
            try:
                yield self.at
            except Exception as error:  # noqa: BLE001  raised again, outside of the group
                failed = error
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed

    def seen(self, ledger: LedgerThread) -> ports.LedgerThread:
        """The ledger as the rooms see it: for tests that stand between them."""
        return ledger


class Daemon:
    """Implements daemon.rooms.Rooms: the rooms of one daemon, wired as `app` wires them."""

    def __init__(self, home: Home, ledger: ports.LedgerThread) -> None:
        self.home, self.ledger = home, ledger
        self.clock, self.holds = home.clock, Holds()
        self.settings = LiveSettings(home.env, config.load(home.env))
        self.files, self.chooser = home.files, home.chooser
        self.transcripts: ports.Transcripts = TranscriptFiles()
        self.watcher: ports.Watcher = DirectoryWatcher()
        self.runs = Runs(ledger, self.clock)
        self.memories = Memories(self.files, ledger, self.runs, self.clock, self.new_id)
        self.projects = Projects(self, GitFiles(home.home))
        self.sessions = Sessions(ledger, self.clock, size_of)
        self.backlog = Backlog(self, lambda: self.work)
        self.loads = Loads(self.settings, self.memories, ledger, self.clock)
        self.silence = Silence(
            self.settings, self.clock, self.sessions, self.projects, self.backlog
        )
        self.work = SaveWork(self, self.projects, self.backlog, self.silence, lambda: 0.5)
        self.overview = Overview(self, self.projects, self.backlog, self.loads)
        self.unwritten = Unwritten()
        self.standing = Standing(self.clock.now(), home.root / "sock", self.settings)
        self.stopped = anyio.Event()
        self._ids = count(1)
        self._handlers = self._wired()
        for listener in (self.projects.forget_all, self.backlog.configure):
            self.settings.tell(listener)

    def _wired(self) -> dict[type[Message], Any]:
        places = Places(self.projects, self.sessions)
        turn = TurnHandlers(
            self.settings,
            self.sessions,
            self.projects,
            self.backlog,
            lambda: self.loads,
            self.silence,
            self.unwritten,
            self.home.state,
        )
        memory = MemoryHandlers(
            self,
            places,
            self.projects,
            self.sessions,
            self.backlog,
            self.silence,
            self.unwritten,
        )
        admin = AdminHandlers(
            self,
            places,
            self.projects,
            self.sessions,
            lambda: self.overview,
            self.standing,
            anyio.lowlevel.checkpoint,
            self.stopped.set,
        )
        return app._handlers(turn, memory, admin)

    async def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        await self.projects.start()
        await tasks.start(self.silence.run)
        await tasks.start(self.backlog.run)
        for name in self.projects.names():
            await self.memories.sweep(self.projects.named(name))

    # ── Rooms ──────────────────────────────────────────────────────────────────────────────────────

    def config(self) -> Config:
        return self.settings()

    def new_id(self) -> str:
        return os.urandom(5).hex()

    async def reachable(self) -> bool:
        return self.home.reachable

    def secrets(self) -> tuple[str, ...]:
        return ("a-very-secret-key",)

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, message: Message, caller: Caller | None = None) -> Any:
        """What the message's handler answers."""
        return await self._handlers[type(message)](message, caller or calling())

    async def run(self) -> RunRecord:
        """The newest run, with its ops."""
        newest = (await self.runs_of("", skipped=True))[-1]
        found = await self.ledger.commit(lambda ledger: ledger.run(newest.id))
        assert found is not None
        return found

    async def runs_of(self, project: str = "", *, skipped: bool = False) -> list[RunRecord]:
        """Runs of a project or of all, oldest first."""
        found = await self.ledger.commit(
            lambda ledger: ledger.runs(project, limit=10_000, skipped=skipped)
        )
        return found[::-1]

    async def owed(self, session: str = "s1") -> Owed | None:
        return await self.ledger.commit(lambda ledger: ledger.owed_by(session))

    async def row(self, session: str = "s1") -> SessionRow:
        found = await self.ledger.commit(lambda ledger: ledger.session(session))
        assert found is not None
        return found

    async def event(self, project: str = "api") -> str:
        """The project's last sentence for the person."""
        found = await self.ledger.commit(lambda ledger: ledger.last_event(project))
        return found[1] if found else ""

    async def status(self, project: str = "api") -> ProjectStatus:
        return await self.overview.project(self.projects.named(project))

    # ── waiting ────────────────────────────────────────────────────────────────────────────────────

    async def quiet(self) -> None:
        """Until no save runs and none could start by now."""
        await settle()
        await self.until(lambda: not self._busy())

    async def later(self, seconds: float) -> None:
        """Turn the clock on, and let happen what then happens."""
        advance(seconds)
        await self.quiet()

    async def until(self, found: Callable[[], bool]) -> None:
        """Until that holds; threads are given their time, the clock stands still."""
        end = time.monotonic() + LIMIT
        while not found():
            assert time.monotonic() < end, "it does not come to that"
            await to_thread.run_sync(_nothing)

    def _busy(self) -> bool:
        queue, now = self.backlog._queue, self.clock.now()
        return bool(queue._running) or queue.next_start(now) <= now


class Line:
    """Implements caller.Line: the other side of a connection, which a test may end."""

    def __init__(self) -> None:
        self.ended = anyio.Event()

    async def gone(self) -> None:
        await self.ended.wait()


def calling(*, spooled: bool = False, **shim: Any) -> Caller:
    """Who sends: a shim, where it says something, which stays on the line."""
    return Caller(Peer(os.geteuid()), ShimHeaders(**shim), None if spooled else Line())


class Talk:
    """A session of the host: its transcript and its events."""

    def __init__(self, home: Home, directory: Path, session: str, shim: dict[str, Any]) -> None:
        self.home = home
        self.directory = directory
        self.session = session
        self.records = Records()
        slug = re.sub("[^A-Za-z0-9]", "-", str(directory))
        self.transcript = home.claude / "projects" / slug / f"{session}.jsonl"
        self.prompts = 0
        self.events = count(1)
        self.shim = {"config_dir": str(home.claude), "project_dir": str(directory), **shim}

    @property
    def prompt_id(self) -> str:
        return f"p{self.prompts}" if self.prompts else ""

    def write(self) -> None:
        """Bring the transcript up to date."""
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        self.transcript.write_bytes(self.records.data)

    def body(self, **fields: Any) -> dict[str, Any]:
        common = {
            "session_id": self.session,
            "transcript_path": str(self.transcript),
            "cwd": str(self.directory),
            "prompt_id": self.prompt_id,
        }
        return {**common, **fields}

    async def send(self, event: HookEvent, **shim: Any) -> Any:
        """One event through its handler."""
        name = f"{self.session}-{next(self.events)}".encode().hex()
        caller = calling(**{"event": name, **self.shim, **shim})
        return await self.home.at.ask(event, caller)

    async def start(self, source: str = "startup", **shim: Any) -> str:
        """SessionStart, all its hooks one after another: what they bring."""
        numbers = range(1, LOAD_PARTS + 1)
        return "".join([await self.part(number, source, **shim) for number in numbers])

    async def part(self, number: int, source: str = "startup", **shim: Any) -> str:
        """One hook of SessionStart, whose process ends with its answer."""
        name = f"{self.session}-{next(self.events)}".encode().hex()
        caller = calling(**{"event": name, "part": number, **self.shim, **shim})
        event = SessionStarted(**self.body(source=source))
        try:
            return context(await self.home.at.ask(event, caller))
        finally:
            assert isinstance(caller._line, Line)
            caller._line.ended.set()

    async def prompt(self, said: str, *, record: bool = True, **fields: Any) -> None:
        """What a person typed, in the transcript too."""
        self.prompts += 1
        await self.send(PromptSubmitted(**self.body(prompt=said, **fields)))
        if record:
            self.records.human(said, promptId=self.prompt_id)
            self.write()

    async def tool(self, name: str = "Bash", result: str = "done", **fields: Any) -> None:
        id_ = f"toolu_{len(self.records.records)}"
        self.records.call(id_, name, command="ls")
        self.records.result(id_, result)
        self.write()
        await self.send(ToolsRan(**self.body(**fields)))

    async def answer(self, said: str = "Done.", *, record: bool = True, **fields: Any) -> None:
        """The turn ends with an answer."""
        if record:
            self.records.model(said)
            self.write()
        await self.send(TurnEnded(**self.body(last_assistant_message=said, **fields)))

    async def turn(self, said: str, answer: str = "Done.") -> None:
        await self.prompt(said)
        await self.answer(answer)

    async def notice(self, answer: str) -> None:
        """A turn that a background task's end started, and that only answered in words."""
        text = "<task-notification>\n<status>completed</status>\n</task-notification>"
        self.prompts += 1
        await self.send(PromptSubmitted(**self.body(prompt=text)))
        origin = {"kind": "task-notification"}
        self.records.user(text, promptId=self.prompt_id, origin=origin, promptSource="system")
        await self.answer(answer)

    async def fail(self) -> None:
        await self.send(TurnFailed(**self.body(error="rate_limit")))

    async def end(self, reason: str = "other") -> None:
        await self.send(SessionEnded(**self.body(reason=reason)))


def context(answer: RawAnswer | None) -> str:
    """The text that a SessionStart's answer puts into the session."""
    if answer is None:
        return ""
    found = json.loads(answer.body)["hookSpecificOutput"]
    assert found["hookEventName"] == "SessionStart"
    return str(found["additionalContext"])


def _git(directory: Path, *arguments: str) -> None:
    person = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in _WHO}
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **person}
    subprocess.run(["git", "-C", directory, *arguments], check=True, env=env)


_WHO = ("NAME", "EMAIL")


def _nothing() -> None:
    """For a thread: whatever waits for one gets its turn."""

"""What is compared: the real daemon in a private home, and the bare echo.

Owns their processes from the start to the end. Waiting for a first answer is done by asking: it is what
P7 measures.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from bench.measure import no_collection
from wire import REPOSITORY, request

from memoryd import paths
from memoryd.adapters.ledger import Ledger
from memoryd.core.project import Identity, Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_LIMIT = 30.0
END_LIMIT = 10.0
"""Seconds until a process that does not start or end is a fault."""

RETRY = 0.0005
"""Seconds between two looks whether it answers."""

RECEIVED = 1 << 16

ECHO = Path(__file__).with_name("echo_server.py")

FIXTURES = REPOSITORY / "tests" / "fixtures" / "events"


def hook_event(route: str, fields: Mapping[str, Any], project: str = "/home/user/demo") -> bytes:
    """A request as a shim of a session in `project` sends it."""
    env = {
        "project_dir": project.encode(),
        "pid": str(os.getpid()).encode(),
        "executable": b"/usr/bin/claude",
        "entrypoint": b"cli",
        "attended": b"1",
        "origin": b"/home/user/.claude/plugins/memoryd/shim.py",
    }
    headers = {
        "memoryd-event": os.urandom(16).hex(),
        "memoryd-part": "0",
        "memoryd-env": ";".join(f"{name}={value.hex()}" for name, value in env.items()),
    }
    return request(f"/v1/{route}", fields, headers=headers)


def fixture(name: str) -> dict[str, Any]:
    """A recorded event."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=dict[str, Any])


EVENT = hook_event("tools_ran", fixture("PostToolBatch-subagent"))
"""A subagent's tools: decoded and typed, and nothing for the ledger."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A socket that answers."""

    path: Path

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(os.fspath(self.path))
        except OSError:
            client.close()
            raise
        return client

    def answers(self, data: bytes = EVENT) -> bool:
        try:
            with self.connect() as client:
                client.sendall(data)
                return client.recv(RECEIVED) != b""
        except OSError:
            return False

    def with_a_connection_each(self, data: bytes, count: int) -> list[float]:
        """Seconds of each request of a turn."""
        found = []
        with no_collection():
            for _ in range(count):
                started = time.perf_counter()
                client = self.connect()
                client.sendall(data)
                client.recv(RECEIVED)
                client.close()
                found.append(time.perf_counter() - started)
        return found

    def kept_open(self, data: bytes, count: int) -> list[float]:
        """The same on one connection."""
        found = []
        with self.connect() as client, no_collection():
            for _ in range(count):
                started = time.perf_counter()
                client.sendall(data)
                client.recv(RECEIVED)
                found.append(time.perf_counter() - started)
        return found


@dataclass(slots=True)
class Service:
    """A process with a socket; a context manager that begins with the first answer."""

    command: Sequence[str]
    wire: Wire
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.perf_counter() + START_LIMIT
        while not self.wire.answers():
            if time.perf_counter() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"does not start: {' '.join(self.command)}")
            time.sleep(RETRY)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.wire.path.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Home:
    """A person's home with nothing in it: the daemon finds all of its places there."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            "MEMORYD_SOCKET": str(self.folder / "m.sock"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }

    @property
    def project(self) -> Path:
        """The directory of the project whose sessions send events."""
        return self.folder / "home" / "project"

    def make(self) -> Self:
        self.project.mkdir(mode=0o700, parents=True)
        return self

    def daemon(self) -> Service:
        command = [sys.executable, "-m", "memoryd"]
        return Service(command, Wire(self.folder / "m.sock"), self.env)

    def know(self, projects: int) -> None:
        """Let the ledger have seen so many projects, each with a memory."""
        state, root = paths.state_dir(self.env), paths.default_memory_root(self.env)
        with Ledger.open(state / "ledger.sqlite3").ledger as ledger:
            for number in range(projects):
                name, place = f"project-{number}", Place(f"/home/user/project-{number}")
                ledger.put_identity(Identity(name, name, name, "plain", place.path, place))
                (root / name).mkdir(parents=True)
                (root / name / "MEMORY.md").write_text(f"# {name}\n")


def echo(folder: Path) -> Service:
    """The reference of the wire's figures."""
    path = folder / "e.sock"
    command = [sys.executable, str(ECHO), str(path)]
    return Service(command, Wire(path), {"PATH": "/usr/bin:/bin"})

"""Runs the plugin's hooks as the host runs them: the command lines that stand in its hooks.json.

Owns what the host does around a hook: all of an event at once, the time limit, the order of the outputs.
Knows nothing of what a hook says to the daemon.
"""

from __future__ import annotations

import subprocess
import time
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memoryd.demo.recording import Event


class Hook(msgspec.Struct, frozen=True):
    """One registered command, in exec form."""

    command: str
    args: tuple[str, ...]
    timeout: float


class Group(msgspec.Struct, frozen=True):
    """Hooks of one matcher."""

    hooks: tuple[Hook, ...]


class _Registered(msgspec.Struct, frozen=True):
    hooks: dict[str, tuple[Group, ...]]


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """What a hook may print; the session gets `additional_context`."""

    hook_event_name: str
    additional_context: str = ""

    def __repr__(self) -> str:
        return f"Answer({self.hook_event_name!r}, {len(self.additional_context)} characters)"


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    hook_specific_output: Answer


class Ran(NamedTuple):
    """All hooks of one event: how many, the seconds they took together, what each printed.

    The outputs stand in the order in which the processes ended, as the host puts them together.
    """

    hooks: int
    seconds: float
    failed: int
    outputs: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"Ran({self.hooks} hooks, {sum(map(len, self.outputs))} bytes)"

    @property
    def context(self) -> str:
        """What the session gets to read."""
        answers = [
            msgspec.json.decode(output, type=_Printed).hook_specific_output
            for output in self.outputs
            if output
        ]
        return "\n".join(answer.additional_context for answer in answers)


class Hooks:
    """The hooks of a rendered plugin, run in `env`, the environment that the host gives them."""

    def __init__(self, plugin: Path, env: Mapping[str, str], cwd: Path) -> None:
        data = (plugin / "hooks" / "hooks.json").read_bytes()
        self._registered = msgspec.json.decode(data, type=_Registered).hooks
        self._env = env
        self._cwd = cwd

    @property
    def events(self) -> int:
        """How many events have hooks."""
        return len(self._registered)

    @property
    def count(self) -> int:
        """All hooks."""
        return sum(len(self._of(name)) for name in self._registered)

    def run(self, event: Event) -> Ran:
        """All hooks of the event at once, each with the event on stdin; raises TimeoutExpired."""
        hooks = self._of(event.hook_event_name)
        outputs: list[bytes] = []
        codes: list[int] = []
        lock = Lock()

        def one(hook: Hook) -> None:
            done = subprocess.run(  # noqa: S603  the commands that we rendered
                [hook.command, *hook.args],
                input=event.line,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**self._env, "CLAUDE_CODE_SESSION_ID": event.session_id},
                cwd=self._cwd,
                timeout=hook.timeout,
                check=False,
            )
            with lock:
                outputs.append(done.stdout)
                codes.append(done.returncode)

        start = time.monotonic()
        threads = [Thread(target=one, args=(hook,)) for hook in hooks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failed = len(hooks) - codes.count(0)
        return Ran(len(hooks), time.monotonic() - start, failed, tuple(outputs))

    def _of(self, event: str) -> tuple[Hook, ...]:
        return tuple(hook for group in self._registered.get(event, ()) for hook in group.hooks)

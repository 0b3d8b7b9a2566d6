"""The hook shim: P1 its kinds, P2 as registered, P3 no daemon or a stopped one, P4 fifty at once.

`case 1` is the first case of the field: a daemon that takes the connection and never answers.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from bench.daemons import Home, hook_event
from bench.measure import Comparison, interleaved, quantile, seconds
from bench.table import compared, valued
from wire import short_dir

from memoryd.ctl import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.daemons import Service
    from bench.measure import Plan
    from bench.table import Row

AT_ONCE = 50
HUNG_CALLS = 100
HUNG_LIMIT = 0.15
HUNG_LONGEST = 1.0
"""Seconds over a bare interpreter that a hook may take where the daemon hangs."""

PASS = "PY -I -S -c pass"
DEVNULL = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The plugin of a home, and sessions whose hooks are started as the host does it."""

    home: Home
    prompts: Iterator[int] = field(default_factory=count)

    def make(self) -> Hooks:
        plugin.plugin_dir(self.home.env)
        return self

    @property
    def places(self) -> plugin.Places:
        return plugin.places_for(self.home.env)

    @property
    def bare(self) -> list[str]:
        """The command of an interpreter that does nothing."""
        return [str(self.places.python), "-I", "-S", "-c", "pass"]

    def shim(self, route: str) -> list[str]:
        return plugin.shim_command(self.places, route)

    def registered(self, event: str) -> list[str]:
        """The words that stand in the plugin's hooks.json."""
        found = json.loads((self.places.folder / "hooks" / "hooks.json").read_text())
        (hook,) = found["hooks"][event][0]["hooks"]
        return [hook["command"], *hook["args"]]

    def run(self, command: Sequence[str], *, subagent: bool = False) -> None:
        """One hook, from its start to its end."""
        wait(self.start(command, subagent=subagent))

    def run_many(self, command: Sequence[str], number: int) -> None:
        """So many at once, each for a session of its own, until all have ended."""
        for process in [self.start(command, session=session) for session in range(number)]:
            wait(process)

    def start(self, command: Sequence[str], *, subagent: bool = False, session: int = 0) -> int:
        """The process, its event waiting in a pipe."""
        event = {**self.event(session), **({"agent_id": "a1"} if subagent else {})}
        reader, writer = os.pipe()
        os.write(writer, json.dumps(event).encode())
        os.close(writer)
        environment = {
            "CLAUDE_PROJECT_DIR": str(self.home.project),
            "CLAUDE_PID": str(os.getpid()),
            "CLAUDE_CODE_ENTRYPOINT": "cli",
            "CLAUDE_CODE_SESSION_ATTENDED": "1",
        }
        actions = [(os.POSIX_SPAWN_DUP2, reader, 0), DEVNULL]
        process = os.posix_spawn(command[0], list(command), environment, file_actions=actions)
        os.close(reader)
        return process

    def event(self, session: int) -> Mapping[str, str]:
        """What the host says in a turn of its own."""
        project = str(self.home.project)
        return {
            "session_id": f"2887ff2a-553b-4163-985c-{session:012}",
            "transcript_path": f"{project}/{session}.jsonl",
            "cwd": project,
            "prompt_id": f"99e97cc4-0b8f-4f5e-bff1-{next(self.prompts):012}",
            "prompt": "Change the colour. " * 20,
        }

    def end_turns(self, daemon: Service, sessions: int = 1) -> None:
        """Let the sessions' turns be over, as before a person's next prompt; nothing is saved."""
        for session in range(sessions):
            event = hook_event("turn_failed", self.event(session), str(self.home.project))
            daemon.wire.answers(event)

    def spooled(self) -> int:
        spool = self.places.spool
        return len(list(spool.iterdir())) if spool.exists() else 0


def wait(process: int) -> None:
    _, status = os.waitpid(process, 0)
    if status != 0:
        raise RuntimeError(f"a hook ended with status {status}")


def p1(plan: Plan) -> Iterator[Row]:
    """A shim's cost over that of its interpreter."""
    with short_dir() as folder:
        hooks = Hooks(Home(folder).make()).make()
        tools, prompt = hooks.shim("tools_ran"), hooks.shim("prompt_submitted")
        with hooks.home.daemon() as daemon:
            kinds: tuple[tuple[str, Callable[[], object], float], ...] = (
                ("no answer wanted", lambda: hooks.run(tools), 1.05),
                ("answered from memory", lambda: hooks.run(prompt, subagent=True), 1.15),
                ("answered after a commit", lambda: hooks.run(prompt), 1.25),
            )
            for what, run, goal in kinds:
                found = _beside_bare(hooks, daemon, run, plan)
                yield compared("P1", f"shim, {what}", found, goal=goal, against=PASS)
        require_none_spooled(hooks)


def p2(plan: Plan) -> Iterator[Row]:
    """The hook as it is registered."""
    with short_dir() as folder:
        hooks = Hooks(Home(folder).make()).make()
        with hooks.home.daemon() as daemon:
            for event in ("PostToolBatch", "UserPromptSubmit"):
                command = hooks.registered(event)
                found = _beside_bare(hooks, daemon, lambda: hooks.run(command), plan)  # noqa: B023
                what = f"hook as registered, {event}"
                yield compared("P2", what, found, goal=1.15, against=PASS)
        require_none_spooled(hooks)


def p3(plan: Plan) -> Iterator[Row]:
    """A daemon that is not there, or does not run."""
    with short_dir() as one, short_dir() as other, short_dir() as third:
        alive, stopped, absent = (Hooks(Home(path).make()).make() for path in (one, other, third))
        with alive.home.daemon(), stopped.home.daemon() as halted:
            os.kill(halted.pid, signal.SIGSTOP)
            try:
                for what, hooks in (("absent", absent), ("stopped", stopped)):
                    found = interleaved(
                        lambda: seconds(lambda: hooks.run(hooks.shim("tools_ran"))),  # noqa: B023
                        lambda: seconds(lambda: alive.run(alive.shim("tools_ran"))),
                        pairs=plan.pairs,
                    )
                    yield compared(
                        "P3",
                        f"shim with the daemon {what}",
                        found.of(float),
                        goal=1.15,
                        against="the same, daemon alive",
                    )
            finally:
                os.kill(halted.pid, signal.SIGCONT)
        if absent.spooled() != plan.pairs:
            raise RuntimeError(f"{absent.spooled()} of {plan.pairs} events were kept")


def p4(plan: Plan) -> Iterator[Row]:
    """Fifty hooks at once."""
    number = plan.count(AT_ONCE)
    with short_dir() as folder:
        hooks = Hooks(Home(folder).make()).make()
        with hooks.home.daemon() as daemon:
            for route in ("tools_ran", "prompt_submitted"):
                command = hooks.shim(route)

                def ours(command: Sequence[str] = command) -> float:
                    hooks.end_turns(daemon, number)
                    return seconds(lambda: hooks.run_many(command, number))

                ours()
                before = hooks.spooled()
                found = interleaved(
                    ours,
                    lambda: seconds(lambda: hooks.run_many(hooks.bare, number)),
                    pairs=plan.pairs,
                )
                yield compared(
                    "P4",
                    f"{number} hooks at once, {route}",
                    found.of(float),
                    goal=1.15,
                    against=f"{number} x {PASS}",
                    note=f"{hooks.spooled() - before} of {number * plan.pairs} left in the spool",
                )


def hung(plan: Plan) -> Iterator[Row]:
    """Case 1: connected, never answered."""
    calls = plan.count(HUNG_CALLS)
    with short_dir() as folder, socket.socket(socket.AF_UNIX) as listener:
        hooks = Hooks(Home(folder).make()).make()
        listener.bind(os.fspath(hooks.places.socket))
        hooks.places.socket.chmod(0o600)
        listener.listen(2 * calls)
        bare = quantile([seconds(lambda: hooks.run(hooks.bare)) for _ in range(calls)], 0.5)
        run = hooks.shim("turn_ended")
        taken = [seconds(lambda: hooks.run(run)) for _ in range(calls)]
        kept = hooks.spooled()
    for what, longest, goal in (
        ("p99", quantile(taken, 0.99), HUNG_LIMIT),
        ("longest", max(taken), HUNG_LONGEST),
    ):
        yield valued(
            "case1",
            f"over a bare start, a daemon that hangs, {what}",
            longest - bare,
            goal=goal,
            unit="ms",
            reference=f"{calls} calls, {kept} events kept",
        )


def _beside_bare(
    hooks: Hooks, daemon: Service, run: Callable[[], object], plan: Plan
) -> Comparison:
    """Each in a turn of its own: a prompt changes what the ledger holds, as a person's does."""

    def ours() -> float:
        hooks.end_turns(daemon)
        return seconds(run)

    ours()
    found = interleaved(ours, lambda: seconds(lambda: hooks.run(hooks.bare)), pairs=plan.pairs)
    return found.of(float)


def require_none_spooled(hooks: Hooks) -> None:
    if hooks.spooled():
        raise RuntimeError(f"{hooks.spooled()} events were spooled: the daemon did not answer")


FIGURES = {"P1": p1, "P2": p2, "P3": p3, "P4": p4, "case1": hung}

"""The hook shim: P1 its kinds, P2 as registered, P3 no daemon or a stopped one, P4 fifty at once.

`python -m bench.bench_shim [--pairs N] [--daemon COMMAND] [P1 P2 …]` from the folder `tests`. COMMAND
starts a daemon that finds its places in the environment; without it the real one runs. `hung` is case
1 of the field: a daemon that takes the connection and never answers.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.bench_wire import Bench
from bench.measure import PAIRS, interleaved, quantile, seconds, show_ratio, show_value
from wire import short_dir

from memoryd.ctl.plugin import Places, hook_interpreter, render, shim_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

AT_ONCE = 50
HUNG_CALLS = 100
HUNG_LIMIT = 150.0
"""Milliseconds over a bare interpreter that a hook may take where the daemon hangs."""

PASS = "PY -I -S -c pass"
REAL_DAEMON = shlex.join([sys.executable, "-m", "memoryd"])


@dataclass(frozen=True, slots=True)
class Hooks:
    """A rendered plugin beside the socket of `bench`, and events of a session in a project there."""

    folder: Path

    @property
    def places(self) -> Places:
        spool = self.folder / "state" / "memoryd" / "spool"
        return Places(hook_interpreter(), self.folder / "plugin", self.folder / "m.sock", spool)

    def make(self) -> Hooks:
        (self.folder / "project").mkdir()
        places = self.places
        places.spool.parent.mkdir(parents=True, mode=0o700)
        render(
            places.folder,
            interpreter=places.python,
            socket=places.socket,
            spool=places.spool,
        )
        return self

    def shim(self, route: str, *, subagent: bool = False) -> Callable[[], object]:
        """Run the shim for an event and wait for its end. A subagent's event changes no state."""
        command = shim_command(self.places, route)
        return lambda: wait(self.start(command, subagent=subagent))

    def registered(self, event: str) -> Callable[[], object]:
        """Run a hook with the words that stand in the plugin's hooks.json."""
        found = json.loads((self.places.folder / "hooks" / "hooks.json").read_text())
        (hook,) = found["hooks"][event][0]["hooks"]
        return lambda: wait(self.start([hook["command"], *hook["args"]]))

    def bare(self) -> Callable[[], object]:
        return lambda: wait(self.start(self.bare_command))

    @property
    def bare_command(self) -> list[str]:
        return [str(self.places.python), "-I", "-S", "-c", "pass"]

    def at_once(self, command: Sequence[str]) -> Callable[[], object]:
        """Start fifty, each for a session of its own, and wait for all."""

        def work() -> None:
            for process in [self.start(command, session=number) for number in range(AT_ONCE)]:
                wait(process)

        return work

    def start(self, command: Sequence[str], *, subagent: bool = False, session: int = 0) -> int:
        """The process, its event waiting in a pipe."""
        project = str(self.folder / "project")
        event = {
            "session_id": f"2887ff2a-553b-4163-985c-{session:012}",
            "transcript_path": f"{project}/{session}.jsonl",
            "cwd": project,
            "prompt_id": "99e97cc4-0b8f-4f5e-bff1-1ad00235d600",
            "prompt": "Change the colour. " * 20,
            **({"agent_id": "a1"} if subagent else {}),
        }
        reader, writer = os.pipe()
        os.write(writer, json.dumps(event).encode())
        os.close(writer)
        environment = {"CLAUDE_PROJECT_DIR": project, "CLAUDE_PID": str(os.getpid())}
        actions = [
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ]
        process = os.posix_spawn(command[0], list(command), environment, file_actions=actions)
        os.close(reader)
        return process

    def spooled(self) -> int:
        spool = self.places.spool
        return len(list(spool.iterdir())) if spool.exists() else 0


def wait(process: int) -> None:
    _, status = os.waitpid(process, 0)
    if status != 0:
        raise RuntimeError(f"a hook ended with status {status}")


def compare(
    figure: str,
    what: str,
    ours: Callable[[], object],
    reference: Callable[[], object],
    *,
    goal: float,
    against: str,
    pairs: int,
) -> bool:
    """Measure both in turn and print the ratio of their times."""
    found = interleaved(lambda: seconds(ours), lambda: seconds(reference), pairs=pairs)
    return show_ratio(figure, what, found.of(float), goal=goal, against=against)


def p1(bench: Bench) -> None:
    """A shim's cost over that of its interpreter."""
    hooks = Hooks(bench.folder).make()
    kinds = (
        ("no answer wanted", hooks.shim("tools_ran"), 1.05),
        ("answered from memory", hooks.shim("prompt_submitted", subagent=True), 1.15),
        ("answered after a commit", hooks.shim("prompt_submitted"), 1.25),
    )
    with bench.ours():
        for what, run, goal in kinds:
            run()
            compare(
                *("P1", f"shim, {what}", run, hooks.bare()),
                goal=goal,
                against=PASS,
                pairs=bench.pairs,
            )
    require_none_spooled(hooks)


def p2(bench: Bench) -> None:
    """The hook as it is registered."""
    hooks = Hooks(bench.folder).make()
    with bench.ours():
        for event in ("PostToolBatch", "UserPromptSubmit"):
            run = hooks.registered(event)
            run()
            compare(
                *("P2", f"hook as registered, {event}", run, hooks.bare()),
                goal=1.15,
                against=PASS,
                pairs=bench.pairs,
            )


def p3(bench: Bench) -> None:
    """A daemon that is not there, or does not run."""
    (bench.folder / "absent").mkdir(mode=0o700)
    (bench.folder / "stopped").mkdir(mode=0o700)
    absent = Hooks(bench.folder / "absent").make()
    stopped = Hooks(bench.folder / "stopped").make()
    hooks = Hooks(bench.folder).make()
    alive = hooks.shim("tools_ran")
    halted = Bench(stopped.folder, bench.command, bench.pairs).ours()
    with bench.ours(), halted:
        os.kill(halted.pid, signal.SIGSTOP)
        try:
            for what, found in (("absent", absent), ("stopped", stopped)):
                compare(
                    *("P3", f"shim with the daemon {what}", found.shim("tools_ran"), alive),
                    goal=1.15,
                    against="the same, daemon alive",
                    pairs=bench.pairs,
                )
        finally:
            os.kill(halted.pid, signal.SIGCONT)
    if absent.spooled() != bench.pairs:
        raise RuntimeError(f"{absent.spooled()} of {bench.pairs} events were kept")


def p4(bench: Bench) -> None:
    """Fifty hooks at once."""
    hooks = Hooks(bench.folder).make()
    bare = hooks.at_once(hooks.bare_command)
    with bench.ours():
        for route in ("tools_ran", "prompt_submitted"):
            ours = hooks.at_once(shim_command(hooks.places, route))
            ours()
            compare(
                *("P4", f"{AT_ONCE} hooks at once, {route}", ours, bare),
                goal=1.15,
                against=f"{AT_ONCE} x {PASS}",
                pairs=bench.pairs,
            )
        late = hooks.spooled()
    sys.stdout.write(
        f"     of {AT_ONCE * (bench.pairs + 1)} hooks that wanted an answer {late} spooled\n"
    )


def hung(bench: Bench) -> None:
    """Case 1: connected, never answered."""
    hooks = Hooks(bench.folder).make()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(hooks.places.socket))
        listener.listen(2 * HUNG_CALLS)
        bare = quantile([seconds(hooks.bare()) for _ in range(HUNG_CALLS)], 0.5)
        run = hooks.shim("turn_ended")
        taken = [seconds(run) for _ in range(HUNG_CALLS)]
    for share, goal in ((0.99, HUNG_LIMIT), (1.0, 1e3)):
        show_value(
            *("hung", f"shim over a bare start, quantile {share:g}"),
            1e3 * (quantile(taken, share) - bare),
            goal=goal,
            unit="ms",
            detail=f"{HUNG_CALLS} calls, {hooks.spooled()} events kept",
        )


def require_none_spooled(hooks: Hooks) -> None:
    if hooks.spooled():
        raise RuntimeError(f"{hooks.spooled()} events were spooled: the daemon did not answer")


FIGURES = {"P1": p1, "P2": p2, "P3": p3, "P4": p4, "hung": hung}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], default=[])
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--daemon", default=REAL_DAEMON)
    asked = parser.parse_args()
    for figure in asked.figures or FIGURES:
        with short_dir() as folder:
            FIGURES[figure](Bench(folder, asked.daemon, asked.pairs))


if __name__ == "__main__":
    main()

"""P10: what a save costs everybody else in the daemon.

Ten sessions end a turn at once. One has 100 MB of transcript, each reply writes twenty topics, and the
worker that asks the model is started for it: its `import anthropic` takes a processor meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bench_transcript import write_session
from bench.daemons import Wire, hook_event
from bench.measure import interleaved, quantile
from bench.table import compared
from house import House, adding
from wire import REPOSITORY, short_dir

from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Plan
    from bench.table import Row

    from memoryd.demo.script import Call, Reply

PROJECTS = 10
TOPICS = 20
"""Topics that a reply adds to: with MEMORY.md ten replies write a little more than 200 files."""

LONG, SHORT = 100_000_000, 10_000
"""Bytes of transcript: of one session, of each other."""

PAUSE = 0.001
"""Seconds between two requests of the probe: it is no load itself."""

IDLE_SECONDS = 1.0
WORKER_IDLE = 0.5
"""Seconds after which the worker ends: one for all saves of a turn, a new one for the next."""

SAVED_LIMIT = 120.0
LOOK = 0.02
"""Seconds between two looks whether the files are written."""

CONFIG = f'[fork]\nbackend = "digest"\nworker_idle = "{1000 * WORKER_IDLE:g} ms"\n'


def socket_of(house: House) -> Path:
    return house.root / "run" / "memoryd.sock"


@dataclass(slots=True)
class Load:
    """Ten projects of a house; each call of `make` is one more turn of theirs."""

    house: House
    long: Path
    rounds: int = 0
    projects: list[Path] = field(default_factory=list)

    def prepare(self, size: int) -> None:
        write_session(self.long, size=size, live=size)
        for number in range(PROJECTS):
            project = self.house.home / f"project{number}"
            project.mkdir()
            self.projects.append(project)

    def reply(self, _: Call) -> Reply:
        """Twenty topics, and a fact by which the round is known."""
        topics = [
            {"file": f"topic{number}.md", "append": f"Round {self.rounds}: all is well."}
            for number in range(TOPICS)
        ]
        ops = [adding(f"Round {self.rounds} of the load is done.")]
        return text(json.dumps({"ops": ops, "topics": topics}))

    def make(self) -> None:
        """Each project's turn, in a session of its own, until all are saved.

        The transcript comes after the prompt: all of it is news.
        """
        self.rounds += 1
        self._send("prompt_submitted")
        for number in range(PROJECTS):
            self._write_transcript(number)
        self._send("turn_ended")
        deadline = time.monotonic() + SAVED_LIMIT
        while not all(map(self._is_saved, self.projects)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not saved: {self.house.log[-2000:]}")
            time.sleep(LOOK)

    def _send(self, route: str) -> None:
        wire = Wire(socket_of(self.house))
        for number, project in enumerate(self.projects):
            event = {
                "session_id": self._session(number),
                "transcript_path": str(self._transcript(number)),
                "cwd": str(project),
                "prompt_id": f"99e97cc4-0b8f-4f5e-bff1-{self.rounds:012}",
                "prompt": "Change the colour.",
                "last_assistant_message": "Done.",
            }
            wire.answers(hook_event(route, event, str(project)))

    def _session(self, number: int) -> str:
        return f"2887ff2a-553b-4163-{self.rounds:04}-{number:012}"

    def _transcript(self, number: int) -> Path:
        return self.house.home / ".claude" / "projects" / "p" / f"{self._session(number)}.jsonl"

    def _write_transcript(self, number: int) -> None:
        transcript = self._transcript(number)
        transcript.parent.mkdir(parents=True, exist_ok=True)
        if number == 0:
            os.link(self.long, transcript)
        else:
            write_session(transcript, size=SHORT, live=SHORT)

    def _is_saved(self, project: Path) -> bool:
        return f"Round {self.rounds} of" in self.house.memory(project.name)


def p10(plan: Plan) -> Iterator[Row]:
    """Request latency while saves run, beside that of the idle daemon."""
    with short_dir() as root, ScriptedApi() as api:
        house = House(root, api)
        house.configure(CONFIG)
        load = Load(house, root / "long.jsonl")
        load.prepare(plan.count(LONG))
        api.script = load.reply
        house.start()
        try:
            load.make()
            found = interleaved(
                partial(_probed, house, load.make),
                partial(_probed, house, partial(time.sleep, IDLE_SECONDS * plan.share)),
                pairs=plan.pairs,
            )
        finally:
            house.stop()
    requests = sorted(len(times) for times in found.ours)[plan.pairs // 2]
    for what, goal, value in (
        ("p99", 2.0, partial(quantile, share=0.99)),
        ("longest", 10.0, max),
    ):
        yield compared(
            "P10",
            f"request while saves run, {what}",
            found.of(value),
            goal=goal,
            against="the same, idle",
            unit="µs",
            note=f"of {requests} requests" if value is max else "",
        )


def _probed(house: House, work: Callable[[], None]) -> list[float]:
    """Seconds of the requests that were made meanwhile, the worker of an earlier turn being gone."""
    assert house.process is not None
    children = Path(f"/proc/{house.process.pid}/task/{house.process.pid}/children")
    while children.read_text():
        time.sleep(LOOK)
    with _probe(house) as probe:
        work()
        out, _ = probe.communicate()
    found = json.loads(out)
    assert isinstance(found, list)
    return found


@contextmanager
def _probe(house: House) -> Iterator[subprocess.Popen[str]]:
    """A probe that runs."""
    command = [sys.executable, "-m", "bench.probe", str(socket_of(house))]
    python_path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])
    process = subprocess.Popen(
        [*command, str(PAUSE)],
        env={**house.env, "PYTHONPATH": python_path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


FIGURES = {"P10": p10}

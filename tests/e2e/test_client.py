"""The whole thing with the real client: its hooks, its transcripts, its forks."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from e2e.host import Host
from house import House, adding, saying
from wire import short_dir

from memoryd.ctl import plugin
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import Answer, Failure, Text, text, tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.host import Terminal

    from memoryd.demo.script import Call, Reply

pytestmark = [pytest.mark.e2e, pytest.mark.client]

FACT = re.compile(r"FACT-\d+")
OURS = "[memoryd] This message is not from the user"
BACKENDS = ["digest", "claude"]
BLOCK = "[PROJECT MEMORY: project]"
LONG = 49_900


@dataclass
class Model:
    """Answers a session's turns by what the prompt asks, and a fork with the facts that it reads."""

    forks: Event = field(default_factory=Event)
    """Set: forks are answered; cleared: they have to wait."""

    def __call__(self, call: Call) -> Reply:
        new = "\n".join(call.new_texts)
        if OURS in new:
            found = dict.fromkeys(FACT.findall("\n".join(call.texts)))
            reply = saying(*(adding(f"{fact} holds.") for fact in found))
            assert isinstance(reply, Answer)
            return Answer(reply.blocks, hold=self.forks)
        if "RUN-A-JOB" in new and "tool_result" not in str(call.body["messages"][-1]):
            return tool("Bash", command="sleep 3", description="A job", run_in_background=True)
        if "<task-notification>" in new:
            return text("The job is done: FACT-9")
        if "FAIL-NOW" in new and "again" not in new:
            return Failure(400, "invalid_request_error", "scripted")
        if "WAIT-NOW" in new:
            return Answer((Text("Thinking about it"),), hold_inside=Event())
        return text("Noted.")


@dataclass
class Real:
    """The client, the daemon and the model."""

    house: House
    host: Host
    model: Model

    @property
    def memory(self) -> str:
        return self.house.memory("project")

    def sessions_calls(self) -> list[Call]:
        """Requests of sessions, not of forks."""
        return [call for call in self.house.api.messages if not call.holds(OURS)]

    def wait_for(self, fact: str) -> None:
        self.house.wait(lambda: f"{fact} holds." in self.memory, 60)


@contextmanager
def real(backend: str = "digest") -> Iterator[Real]:
    model = Model()
    model.forks.set()
    with short_dir() as root, ScriptedApi(model) as api:
        made = House(root, api)
        made.configure(f'[fork]\nbackend = "{backend}"\n')
        host = Host.make(root, api.url, plugin=plugin.plugin_dir(made.env))
        made.start()
        try:
            yield Real(made, host, model)
        finally:
            model.forks.set()
            made.kill()


def blocks(call: Call) -> int:
    """How often the request holds the memory block."""
    return sum(found.count(BLOCK) for found in call.texts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_print_mode_is_answered_before_the_save_ends_and_the_next_session_has_it(
    backend: str,
) -> None:
    with real(backend) as it:
        it.model.forks.clear()
        done = it.host.print_mode("remember FACT-1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout == "Noted.\n"
        assert it.memory == ""
        it.model.forks.set()
        it.wait_for("FACT-1")
        (run,) = it.house.wait_saved()
        assert (run.backend, run.state) == (backend, "done")
        assert it.host.print_mode("what do you know?").returncode == 0
        last = it.sessions_calls()[-1]
        assert blocks(last) == 1
        assert last.holds("- FACT-1 holds.")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interactive_session_is_saved_and_loaded_after_clear_and_compact(backend: str) -> None:
    with real(backend) as it, it.host.interactive() as terminal:
        terminal.submit("remember FACT-1")
        terminal.wait_for("Noted.")
        it.wait_for("FACT-1")
        terminal.submit("/clear")
        submit_until_ready(terminal, "after clear: FACT-2")
        it.house.api.wait_for(lambda call: call.holds("after clear: FACT-2"))
        it.wait_for("FACT-2")
        cleared = next(call for call in it.sessions_calls() if call.holds("after clear"))
        assert blocks(cleared) == 1
        assert cleared.holds("- FACT-1 holds.")
        submit_until_ready(terminal, "/compact")
        terminal.wait_for("Compacted", 60)
        submit_until_ready(terminal, "after compact: FACT-3")
        it.wait_for("FACT-3")
        compacted = next(
            call for call in it.sessions_calls() if call.holds("after compact: FACT-3")
        )
        assert blocks(compacted) == 1
        assert compacted.holds("- FACT-2 holds.")
        terminal.exit()


def submit_until_ready(terminal: Terminal, line: str) -> None:
    terminal.wait_ready()
    terminal.submit(line)


def test_an_interrupted_turn_is_saved() -> None:
    with real() as it, it.host.interactive() as terminal:
        terminal.submit("WAIT-NOW with FACT-4")
        it.house.api.wait_for(lambda call: call.holds("WAIT-NOW with FACT-4"))
        terminal.press("Escape")
        terminal.wait_for("Interrupted")
        submit_until_ready(terminal, "go on")
        it.wait_for("FACT-4")
        assert it.house.runs()[0].reason == "interrupted"


def test_a_notice_that_only_got_words_is_skipped_and_read_by_the_next_save() -> None:
    with real() as it, it.host.interactive("--allowedTools", "Bash") as terminal:
        terminal.submit("RUN-A-JOB")
        terminal.wait_for("FACT-9", 60)
        it.house.wait_skipped()
        it.house.wait_idle(it.host.project)
        assert "FACT-9" not in it.memory
        submit_until_ready(terminal, "thanks")
        it.wait_for("FACT-9")


def test_an_api_error_is_not_saved_and_counts_for_the_next_turn() -> None:
    with real() as it, it.host.interactive() as terminal:
        terminal.submit("FAIL-NOW with FACT-5")
        terminal.wait_for("API Error")
        submit_until_ready(terminal, "again please")
        it.wait_for("FACT-5")
        assert [run.reason for run in it.house.runs()] == ["answer"]


def test_two_sessions_of_one_project_at_once() -> None:
    with real() as it:
        prompts = ["remember FACT-10", "remember FACT-11"]
        threads = [Thread(target=it.host.print_mode, args=(prompt,)) for prompt in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        it.wait_for("FACT-10")
        it.wait_for("FACT-11")
        lines = it.memory.split("\n")
        assert lines.count("- FACT-10 holds.") == lines.count("- FACT-11 holds.") == 1


def test_a_linked_worktree_shares_its_repositorys_memory() -> None:
    with real() as it:
        tree = worktree(it.host.project, it.house.root / "tree")
        it.host.trust(it.host.project, tree)
        assert it.host.print_mode("remember FACT-6", cwd=tree).returncode == 0
        it.wait_for("FACT-6")
        assert it.host.print_mode("what do you know?").returncode == 0
        assert it.sessions_calls()[-1].holds("- FACT-6 holds.")
        assert it.host.print_mode("and here?", cwd=tree).returncode == 0
        last = it.sessions_calls()[-1]
        assert last.holds("- FACT-6 holds.")
        block = next(found for found in last.texts if BLOCK in found)
        assert str(it.host.project) not in block


def worktree(repository: Path, tree: Path) -> Path:
    """A linked worktree of `repository`, which is made a repository."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (
        ["init", "-q"],
        [*author, "commit", "-q", "--allow-empty", "-m", "first"],
        ["worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)
    return tree


def test_49_900_characters_reach_the_model_whole_and_in_order() -> None:
    with real() as it:
        written = long_memory()
        folder = it.house.memory_root / "project"
        folder.mkdir(parents=True)
        (folder / "MEMORY.md").write_text(written)
        assert it.host.print_mode("hello").returncode == 0
        call = it.sessions_calls()[-1]
        arrived = "\n".join(call.texts)
        assert re.findall(r"fact \d+ [a-z]+", arrived) == re.findall(r"fact \d+ [a-z]+", written)
        heads = re.findall(r"\[PROJECT MEMORY: project(?:, part \d of \d)?\]", arrived)
        assert heads == [BLOCK, *(f"[PROJECT MEMORY: project, part {n} of 6]" for n in range(2, 7))]
        status = it.house.project_status(it.host.project)
        assert (status.loaded_lines, status.characters) == (status.load_lines, LONG)


def long_memory() -> str:
    """A memory in shape, just under the hard cap of characters."""
    head = "# project\n\n## CRITICAL RULES\n\n- None yet.\n\n## Architecture & Config Facts\n\n"
    tail = "\n## Active Warnings\n\n- None yet.\n\n## Topic Files\n\n- None yet.\n"
    facts: list[str] = []
    left = LONG - len(head) - len(tail)
    while left > 400:
        facts.append(f"- fact {len(facts)} {'x' * 280}\n")
        left -= len(facts[-1])
    facts.append(f"- fact {len(facts)} {'y' * (left - len(f'- fact {len(facts)} ') - 1)}\n")
    text_ = head + "".join(facts) + tail
    assert len(text_) == LONG
    return text_

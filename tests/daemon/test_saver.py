"""The story of one save, with each way in which it ends."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from ledgers import run as a_run
from memories import memory
from rooms import BASE, Home, adding, learning, quick_root, saying
from wire import CLOCK_BACKEND, advance

from memoryd.adapters.transcript_file import TranscriptFiles
from memoryd.daemon.taking import Forked
from memoryd.ports import ForkFailure, ForkReply
from memoryd.protocol import EventShown, RunChanged, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from memoryd.core.failure import FailureKind
    from memoryd.core.transcript import Reading

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


def says(home: Home, *outcomes: Any) -> None:
    """What the model answers from now on."""
    home.backend.outcomes.clear()
    home.backend.outcomes.extend(outcomes)


class TestDone:
    async def test_a_turn_is_written_and_owed_no_more(self, home: Home) -> None:
        usage = Usage(input=9, output=3, cache_read=2, cache_write=1)
        says(home, replace(saying(adding("FACT-1 holds.")), usage=usage))
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.start()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            run = await daemon.run()
            row = await daemon.row()
            assert await daemon.owed() is None
            assert daemon.backlog.waiting("api") == 0
            assert daemon.runs.live("api") is None
        assert home.memory().count("- FACT-1 holds.\n") == 1
        assert (run.project, run.session, run.state, run.reason) == ("api", "s1", "done", "answer")
        assert (run.backend, run.backend_reason, run.model) == (
            "fake",
            "the only one",
            "fake-model",
        )
        assert (run.usage, run.status, run.attempts, run.asked) == (usage, "+1", 1, 1)
        assert run.event == "MEMORY.md: created, 1 added"
        assert (run.before, len(run.after)) == ("", 64)
        assert (run.lines_added, run.lines_removed) == (11, 0)
        assert run.leaf == talk.records.leaf
        assert BASE <= run.owed_at <= run.started_at <= run.ended_at
        assert [(op.kind, op.outcome, op.text) for op in run.ops] == [
            ("add", "applied", "FACT-1 holds.")
        ]
        assert row.read_offset == talk.transcript.stat().st_size

    async def test_all_steps_are_recorded_and_told(self, home: Home) -> None:
        async with home.daemon() as daemon:
            async with daemon.runs.follow("api") as lines:
                await home.talk().turn("remember FACT-1")
                told = [await anext(lines) for _ in range(5)]
            states = [line.run.state for line in told if isinstance(line, RunChanged)]
            assert states == ["fork", "read", "apply", "done"]
            assert isinstance(told[-1], EventShown)
            assert told[-1].text == "MEMORY.md: created, 1 added"
            assert await daemon.event() == "MEMORY.md: created, 1 added"

    async def test_the_backend_is_warmed_before_the_transcript_is_read(self, home: Home) -> None:
        warmed = []

        class Watched(TranscriptFiles):
            def read(self, path: Path, root: Path, *, since: int) -> Reading:
                warmed.append(home.backend.warmed)
                return super().read(path, root, since=since)

        async with home.daemon() as daemon:
            daemon.transcripts = Watched()
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
        assert (warmed, home.backend.warmed) == ([1], 1)

    @pytest.mark.parametrize("why", ["no key", "it asked to wait", "perhaps nothing to read"])
    async def test_nothing_is_warmed_that_will_not_be_asked(self, home: Home, why: str) -> None:
        home.backend.fault_text = "no key" if why == "no key" else ""
        async with home.daemon() as daemon:
            if why == "it asked to wait":
                daemon.holds.hold("fake", BASE + 3600)
            talk = home.talk()
            if why == "perhaps nothing to read":
                await talk.notice("It ended.")
                await talk.end()
            else:
                await talk.turn("remember FACT-1")
            await daemon.quiet()
        assert home.backend.warmed == 0

    async def test_texts_before_and_after_are_kept(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        says(home, saying(adding("new.", "Architecture & Config Facts"), topics={"db.md": "- x"}))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
            versions = await daemon.ledger.commit(
                lambda ledger: [
                    (each.name, ledger.version(each.before), ledger.version(each.after))
                    for each in ledger.file_versions(run.id)
                ]
            )
        assert versions == [
            ("MEMORY.md", memory(facts=["- old."]).encode(), home.memory().encode()),
            ("db.md", None, home.memory(file="db.md").encode()),
        ]
        assert run.topics == ["db.md"]
        assert "- `db.md`." in home.memory()

    async def test_what_the_model_is_given(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        home.remember("# api: db\n", file="db.md")
        async with home.daemon() as daemon:
            talk = home.talk(pid=7, executable="/bin/claude", entrypoint="cli")
            await talk.turn("my key is a-very-secret-key, remember FACT-1", "It is FACT-2.")
            await daemon.quiet()
        (request,) = home.backend.requests
        assert request.message.startswith("[memoryd]")
        assert "- old." in request.message
        assert "FACT-1" in "".join(request.conversation)
        assert "FACT-2" in "".join(request.conversation)
        assert "a-very-secret-key" not in "".join(request.conversation)
        assert request.deadline == 180
        assert not request.shrunk
        session = request.session
        assert (session.id, session.pid, session.executable) == ("s1", 7, "/bin/claude")
        assert (session.transcript, session.cwd) == (talk.transcript, talk.directory)
        assert session.config_dir == home.claude

    async def test_the_last_answer_comes_from_the_event_where_the_transcript_lacks_it(
        self, home: Home
    ) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.prompt("what holds?")
            await talk.answer("FACT-9 does.", record=False)
            await daemon.quiet()
        assert "- FACT-9 holds." in home.memory()

    async def test_only_a_topic(self, home: Home) -> None:
        home.remember(memory(topics=["- `db.md`."]))
        before = home.memory()
        says(home, saying(topics={"db.md": "- x"}))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
        assert home.memory() == before
        assert run.event == "MEMORY.md: topic files only; appended to db.md"
        assert (run.state, run.before) == ("done", run.after)
        assert home.memory(file="db.md") == "# api: db\n\n- x\n"

    async def test_a_file_out_of_shape_is_repaired_first(self, home: Home) -> None:
        home.remember("# api\n\n- a line of old\n")
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            runs = await daemon.runs_of("api")
        assert {run.reason for run in runs} == {"rearranged", "answer"}
        assert home.memory(file="MEMORY.pre-migration.md") == "# api\n\n- a line of old\n"
        assert "## CRITICAL RULES" in home.backend.requests[0].message
        assert "- FACT-1 holds." in home.memory()
        assert "- a line of old" in home.memory()

    async def test_line_ends_and_a_byte_order_mark_stay(self, home: Home) -> None:
        text = "\ufeff" + memory(facts=["- old."]).replace("\n", "\r\n")
        home.remember(text)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
        assert "\ufeff" not in home.backend.requests[0].message
        now = home.memory()
        assert now.replace("- FACT-1 holds.\r\n", "").replace("\r\n\r\n\r\n", "\r\n\r\n") == text
        assert now.count("\n") == now.count("\r\n")


class TestNothingWritten:
    async def test_no_change(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        says(home, saying())
        stamp = (home.memory_root / "api" / "MEMORY.md").stat().st_mtime_ns
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
            assert await daemon.owed() is None
            assert await daemon.event() == ""
        assert (run.state, run.status, run.event) == ("no_change", "no change", "")
        assert (home.memory_root / "api" / "MEMORY.md").stat().st_mtime_ns == stamp
        assert run.before == run.after

    async def test_no_file_is_made_for_nothing(self, home: Home) -> None:
        says(home, saying())
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
        assert not (home.memory_root / "api").exists()

    async def test_a_result_over_a_cap(self, home: Home) -> None:
        home.remember(memory(facts=[f"- line {number}." for number in range(186)]))
        before = home.memory()
        says(
            home,
            saying(
                *(
                    {"op": "replace", "line": f"- line {n}.", "text": f"{n} " + "x" * 590}
                    for n in range(100)
                )
            ),
        )
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
            status = await daemon.status()
            assert await daemon.owed() is None
        assert home.memory() == before
        assert run.state == "failed"
        assert run.status.startswith("error: not written: ")
        assert run.failure.endswith("the limit is under 50,000")
        assert status.failures == 1

    async def test_after_a_result_that_did_not_fit_the_next_fork_is_asked_to_make_room(
        self, home: Home
    ) -> None:
        home.remember(memory(facts=[f"- line {number}. {'y' * 300}" for number in range(100)]))
        lines = [line for line in home.memory().split("\n") if line.startswith("- line")]
        long = [{"op": "replace", "line": line, "text": line[2:12] + "x" * 560} for line in lines]
        says(home, saying(*long), saying(), saying())
        async with home.daemon() as daemon:
            talk = home.talk()
            for _ in range(3):
                await talk.turn("hello")
                await daemon.quiet()
        asked = ["OFFLOAD: " in request.message for request in home.backend.requests]
        assert asked == [False, True, False]

    async def test_too_much_would_go(self, home: Home) -> None:
        home.remember(memory(facts=[f"- line {number}." for number in range(10)]))
        before = home.memory()
        says(home, saying(*({"op": "remove", "line": f"- line {n}."} for n in range(8))))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
            kept = await daemon.ledger.commit(lambda ledger: ledger.reply(run.id))
            assert await daemon.owed() is None
        assert home.memory() == before
        assert run.state == "held"
        assert run.status == "held for review: 8 of 10 bullets would be removed"
        assert {op.outcome for op in run.ops} == {"held"}
        assert kept is not None  # for the review

    async def test_it_goes_where_all_of_it_stands_in_a_topic(self, home: Home) -> None:
        lines = [f"- line number {number}." for number in range(10)]
        home.remember(memory(facts=lines))
        removes = ({"op": "remove", "line": line} for line in lines[:8])
        says(home, saying(*removes, topics={"old.md": "\n".join(lines[:8])}))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            assert (await daemon.run()).state == "done"
        assert "line number 3" in home.memory(file="old.md")
        assert "line number 3" not in home.memory()


class TestSkipped:
    async def test_a_turn_that_only_answered_a_notice(self, home: Home) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            line = await daemon.overview.line("api")
            await talk.notice("done: FACT-2")
            await daemon.quiet()
            run = await daemon.run()
            assert (run.state, run.event, run.status) == ("skipped", "", "")
            assert await daemon.owed() is None
            assert (await daemon.row()).turn["unread"]
            assert await daemon.overview.line("api") == line
            assert len(home.backend.requests) == 1
            await talk.turn("thanks")
            await daemon.quiet()
            assert len(await daemon.runs_of("api")) == 2
        assert "- FACT-2 holds." in home.memory()

    async def test_a_subagents_tools_are_not_read(self, home: Home) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("hello")
            await daemon.quiet()
            await talk.tool(agent_id="a1")
            talk.records.records[-2]["isSidechain"] = True
            talk.records.records[-1]["isSidechain"] = True
            await talk.notice("done")
            await daemon.quiet()
            assert (await daemon.run()).state == "skipped"
            await talk.tool()
            await talk.answer("I looked.")
            await daemon.quiet()
            assert (await daemon.run()).state != "skipped"


class TestUnreadable:
    async def test_it_is_kept_and_the_turn_stays_owed(self, home: Home) -> None:
        home.remember(memory())
        unread = ForkReply("a-very-secret-key, no JSON", "m", usage=Usage(output=7))
        says(home, unread, learning)
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            run, owed, status = await daemon.run(), await daemon.owed(), await daemon.status()
            assert (run.state, run.status) == ("failed", "")
            assert run.event.startswith("MEMORY.md: reply not read (")
            assert run.event.endswith("7 output tokens; kept in memory-save.failed-reply.txt")
            assert run.failure.startswith("reply not read")
            assert run.usage.output == 7
            assert owed is not None
            assert (owed.parked, owed.attempts, owed.run) == ("turn", 1, "")
            assert (status.owed, status.failures, status.status) == (1, 1, "")
            await daemon.later(3600)
            assert len(home.backend.requests) == 1
            await talk.turn("remember FACT-2")
            await daemon.quiet()
            assert await daemon.owed() is None
            assert (await daemon.status()).failures == 0
        kept = home.memory(file="memory-save.failed-reply.txt")
        assert "no JSON" in kept
        assert "secret-key" not in kept
        assert home.memory().count("FACT-1") == 1
        assert home.memory().count("FACT-2") == 1

    async def test_a_cut_one_says_so(self, home: Home) -> None:
        says(home, ForkReply('{"ops": [{"op": "add"', "m", stop="cut"))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
        assert run.status == "error: the fork was cut before its reply"
        assert home.memory(file="memory-save.failed-reply.txt")

    async def test_a_cut_one_that_can_be_read_is_read(self, home: Home) -> None:
        says(home, saying(adding("whole."), stop="cut"))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            assert (await daemon.run()).state == "done"

    @pytest.mark.parametrize(
        ("text", "state"),
        [
            ('```json\n{"ops":[{"op":"add","section":"Active Warnings","text":"x"}]}\n```', "done"),
            ('I think {this}: {"ops":[],"topics":[]}', "no_change"),
            ('{"ops":[]} and that is it', "no_change"),
            ('{"ops":[],"topics":[]}{"ops":[],"topics":[]}', "no_change"),
            ('{"ops":[],"topics":[]} } and that is it', "failed"),
            ('{"ops": NaN}', "failed"),
            ('{"ops": null}', "failed"),
            ('{"ops":[{"op":"add","section":"Active Warnings","text":"\\ud800"}]}', "no_change"),
            ("x" * 5_000_000, "failed"),
            ("{" * 100_000, "failed"),
            ("Your spending limit was reached.", "failed"),
            ("prompt is too long: 429 Not logged in", "failed"),
        ],
    )
    async def test_every_kind_of_reply_has_its_end(self, home: Home, text: str, state: str) -> None:
        home.remember(memory())
        says(home, ForkReply(text, "m"))
        async with home.daemon() as daemon:
            await home.talk().turn("hello")
            await daemon.quiet()
            run = await daemon.run()
            assert run.state == state
            assert (await daemon.owed() is None) is (state != "failed")
        assert len(home.backend.requests) == 1


KINDS: list[tuple[FailureKind, str, str]] = [
    ("nothing", "there is nothing to fork yet", "turn"),
    ("empty", "the fork's reply was empty", "turn"),
    ("cut", "the fork was cut before its reply", "turn"),
    ("refused", "the fork was refused by the model", "turn"),
    ("rejected", "the fork got an API error, 404 (not found)", "turn"),
    ("credentials", "the fork got an API error, 401 (authentication)", "credentials"),
    ("transient", "the fork got an API error, 529 (overloaded)", ""),
    ("too_long", "the fork got an API error, 400 (invalid request)", "turn"),
]


class TestFailed:
    @pytest.mark.parametrize(("kind", "words", "park"), KINDS)
    async def test_of_each_kind(self, home: Home, kind: FailureKind, words: str, park: str) -> None:
        status = {"rejected": 404, "credentials": 401, "transient": 529, "too_long": 400}
        failure = ForkFailure(
            kind, status=status.get(kind, 0), usage=Usage(input=4), model="fake-model"
        )
        says(home, failure)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            run, owed, found = await daemon.run(), await daemon.owed(), await daemon.status()
            assert owed is not None
            assert (owed.parked, owed.attempts, owed.run, owed.sure) == (park, 1, "", True)
            assert daemon.backlog.waiting("api") == 1
            assert await daemon.event() == ""
        assert (run.state, run.status, run.failure) == ("failed", f"error: {words}", words)
        assert (run.usage.input, run.model, run.backend) == (4, "fake-model", "fake")
        assert (found.owed, found.failures, found.failure) == (1, 1, words)
        assert found.failing_since == run.ended_at
        assert not home.memory()

    async def test_too_long_is_shrunk_once_and_never_sent_again(self, home: Home) -> None:
        says(home, ForkFailure("too_long", status=400), learning)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            run = await daemon.run()
        first, second = home.backend.requests
        assert (first.shrunk, second.shrunk) == (False, True)
        assert first.attempt != second.attempt
        assert first.conversation == second.conversation
        assert run.state == "done"

    async def test_too_long_twice_waits_for_the_next_turn(self, home: Home) -> None:
        says(home, ForkFailure("too_long", status=400))
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            await daemon.later(7200)
        assert len(home.backend.requests) == 2

    async def test_the_deadline_is_given_on(self, home: Home) -> None:
        home.configure('[fork]\ndeadline = "20 s"\n')
        home.backend.hold = anyio.Event()
        async with home.daemon() as daemon:
            talk, other = home.talk(), home.talk(home.project("web"), "s2")
            await talk.turn("remember FACT-1")
            await home.backend.started.wait()
            await other.turn("remember FACT-2")
            await daemon.until(lambda: len(home.backend.requests) == 2)
            advance(20)
            await daemon.quiet()
            failed = [run.failure for run in await daemon.runs_of()]
        assert failed == ["the fork got an API error, no response"] * 2

    async def test_a_backend_that_breaks(self, home: Home) -> None:
        def breaks(_: object) -> ForkReply:
            raise RuntimeError("the words of a conversation")

        says(home, breaks)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            run, owed = await daemon.run(), await daemon.owed()
        assert run.failure == "not saved: RuntimeError, see the log"
        assert run.state == "failed"
        assert owed is not None
        assert owed.parked == "turn"

    async def test_no_backend_can_work(self, home: Home) -> None:
        home.backend.fault_text = "no key"
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            run, owed = await daemon.run(), await daemon.owed()
        assert (run.failure, run.backend) == ("no key", "")
        assert owed is not None
        assert owed.parked == "credentials"
        assert home.backend.requests == []

    async def test_a_memory_that_is_not_utf8(self, home: Home) -> None:
        path = home.remember("")
        path.write_bytes(b"# api\n\xff\n")
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            run, status = await daemon.run(), await daemon.status()
            assert run.failure == f"not saved: cannot read {path}: not UTF-8 at byte 6"
            assert status.fault == f"cannot read {path}: not UTF-8 at byte 6"
            await daemon.later(7200)
            assert home.backend.requests == []
            assert path.read_bytes() == b"# api\n\xff\n"
            path.write_text(memory())
            await talk.turn("remember FACT-2")
            await daemon.quiet()
            assert (await daemon.status()).fault == ""
        assert "FACT-1" in home.memory()

    async def test_a_memory_linked_out_of_the_home(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "out.md").write_text("theirs")
        path = home.remember("")
        path.unlink()
        path.symlink_to(tmp_path / "out.md")
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            run, owed = await daemon.run(), await daemon.owed()
        assert "the link leads out of the home directory" in run.failure
        assert owed is not None
        assert owed.parked == "turn"
        assert (tmp_path / "out.md").read_text() == "theirs"


class TestTranscripts:
    async def test_one_that_is_not_there_yet(self, home: Home) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.prompt("remember FACT-1", record=False)
            await talk.answer("Done.", record=False)
            await daemon.quiet()
            run, owed = await daemon.run(), await daemon.owed()
            assert (run.status, home.backend.requests) == ("error: transcript missing", [])
            assert owed is not None
            assert (owed.parked, owed.transcript_seen) == ("turn", False)
            other = home.talk(session="s2")
            talk.transcript = other.transcript
            await talk.turn("remember FACT-2")
            await daemon.quiet()
            assert (await daemon.run()).state == "done"
        assert "FACT-2" in home.memory()

    async def test_none_was_named(self, home: Home) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.prompt("remember FACT-1", record=False, transcript_path="")
            await talk.answer("Done.", record=False, transcript_path="")
            await daemon.quiet()
            assert (await daemon.run()).status == "error: transcript missing"

    async def test_one_that_was_deleted(self, home: Home) -> None:
        home.backend.fault_text = "no key"
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            talk.transcript.unlink()
            home.backend.fault_text = ""
            await daemon.backlog.hasten("api")
            await daemon.quiet()
            run = await daemon.run()
            assert await daemon.owed() is None
        cause = "the transcript was deleted before it was read"
        assert (run.state, run.failure) == ("failed", cause)
        assert (run.status, run.event) == (f"error: {cause}", f"MEMORY.md: a turn is lost: {cause}")

    async def test_one_outside_of_the_hosts_folder(self, home: Home, tmp_path: Path) -> None:
        async with home.daemon() as daemon:
            talk = home.talk()
            talk.transcript = tmp_path / "elsewhere.jsonl"
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            assert (await daemon.run()).failure.startswith("transcript lies outside")
        assert home.backend.requests == []

    async def test_a_config_folder_of_another_profile(self, home: Home) -> None:
        async with home.daemon() as daemon:
            home.claude = home.home / ".claude-work"
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            assert (await daemon.run()).state == "done"
        assert home.backend.requests[0].session.config_dir == home.home / ".claude-work"

    async def test_two_terminals_in_one_session(self, home: Home) -> None:
        """Their rows stand in one file, their events come in any order."""
        async with home.daemon() as daemon:
            one = home.talk(pid=0)
            two = home.talk(pid=0)
            two.records, two.events = one.records, one.events
            await one.prompt("remember FACT-1")
            two.prompts = 7
            await two.prompt("remember FACT-2")
            await one.answer("One.")
            await two.answer("Two.")
            await daemon.quiet()
            runs = await daemon.runs_of("api")
            assert await daemon.owed() is None
        assert home.memory().count("FACT-1") == 1
        assert home.memory().count("FACT-2") == 1
        spans = sorted((run.started_at, run.ended_at) for run in runs)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))

    async def test_what_was_typed_before_a_compaction_still_counts_for_a_later_try(
        self, home: Home
    ) -> None:
        quote = "always use bun on this project"
        rule = adding("Use bun.", "CRITICAL RULES", because=quote)
        says(home, ForkFailure("transient", status=500), saying(rule))
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn(quote)
            await daemon.quiet()
            talk.records.compaction("all before")
            talk.write()
            await daemon.later(60)
            run = await daemon.run()
        assert (run.state, [op.outcome for op in run.ops]) == ("done", ["applied"])
        assert "- Use bun." in home.memory()


class TestNotices:
    async def test_the_next_fork_is_told_until_a_save_was_read(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        lines = [
            saying({"op": "remove", "line": "- nowhere."}, adding("x" * 700)),
            ForkReply("unreadable", "m"),
            saying(),
        ]
        says(home, *lines)
        async with home.daemon() as daemon:
            talk = home.talk()
            for number in range(4):
                await talk.turn(f"turn {number}")
                await daemon.quiet()
        messages = [request.message for request in home.backend.requests]
        assert ["- nowhere." in message for message in messages] == [False, True, True, False]
        assert ["OP SHAPE" in message for message in messages] == [False, True, True, False]

    async def test_a_headless_session_neither_takes_nor_clears_them(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        says(
            home,
            saying({"op": "remove", "line": "- nowhere."}),
            saying({"op": "remove", "line": "- headless."}),
            saying(),
        )
        async with home.daemon() as daemon:
            await home.talk().turn("one")
            await daemon.quiet()
            await home.talk(session="s2", entrypoint="sdk-cli", attended="0").turn("two")
            await daemon.quiet()
            await home.talk(session="s3").turn("three")
            await daemon.quiet()
            await home.talk(session="s4").turn("four")
            await daemon.quiet()
        messages = [request.message for request in home.backend.requests]
        assert ["- nowhere." in message for message in messages] == [False, False, True, False]
        assert "- headless." in messages[2]

    async def test_they_are_left_out_while_there_is_no_file(self, home: Home) -> None:
        home.remember(memory(facts=["- old."]))
        says(home, saying({"op": "remove", "line": "- nowhere."}), saying())
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("one")
            await daemon.quiet()
            (home.memory_root / "api" / "MEMORY.md").unlink()
            await talk.turn("two")
            await daemon.quiet()
        assert "- nowhere." not in home.backend.requests[1].message


class TestCancelled:
    async def test_while_it_forks(self, home: Home) -> None:
        home.backend.hold = anyio.Event()
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await home.backend.started.wait()
            assert daemon.runs.live("api") is not None
            assert daemon.backlog.cancel("api")
            home.backend.hold = None
            await daemon.quiet()
            run, owed = await daemon.run(), await daemon.owed()
            assert (run.state, run.status, run.backend) == ("failed", "error: cancelled", "fake")
            assert owed is not None
            assert owed.parked == "turn"
            assert daemon.runs.live("api") is None
            assert not daemon.backlog.cancel("api")
            await talk.turn("remember FACT-2")
            await daemon.quiet()
        assert "FACT-1" in home.memory()

    async def test_a_turn_that_asked_meanwhile_starts_at_once(self, home: Home) -> None:
        home.backend.hold = anyio.Event()
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            await home.backend.started.wait()
            await talk.turn("remember FACT-2")
            home.backend.hold.set()
            home.backend.hold = None
            daemon.backlog.cancel("api")
            await daemon.quiet()
            assert await daemon.owed() is None
        assert "FACT-2" in home.memory()

    async def test_while_it_writes_it_is_ended(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with home.daemon() as daemon:
            real = home.files.stage

            def stage(*args: Any) -> Any:
                anyio.from_thread.run_sync(daemon.backlog.cancel, "api")
                return real(*args)

            monkeypatch.setattr(home.files, "stage", stage)
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            assert (await daemon.run()).state == "done"
            assert await daemon.owed() is None
        assert "FACT-1" in home.memory()


class TestWatching:
    async def test_an_edit_while_it_forks_is_shown_to_who_follows(self, home: Home) -> None:
        path = home.remember(memory(facts=["- old."]))
        home.backend.hold = anyio.Event()
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await home.backend.started.wait()
            numbers = count()

            def shown() -> bool:
                path.write_text(memory(facts=["- old.", f"- by hand {next(numbers)}."]))
                live = daemon.runs.live("api")
                return live is not None and live.merged

            await daemon.until(shown)
            home.backend.hold.set()
            await daemon.quiet()
            run = await daemon.run()
        assert run.merged
        assert run.event == "MEMORY.md: 1 added; merged over a concurrent edit"
        assert "by hand" in home.memory()

    async def test_an_edit_that_can_not_be_read_stops_no_fork(self, home: Home) -> None:
        path = home.remember(memory(facts=["- old."]))

        def edit(_: object) -> ForkReply:
            path.unlink()
            path.symlink_to(home.root / "out")
            return saying(adding("new."))

        says(home, edit)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            await daemon.quiet()
            assert (await daemon.run()).failure.startswith("not saved: cannot follow")


def test_a_reply_shows_its_length_alone() -> None:
    assert "secret" not in repr(Forked(a_run(), "secret", "secret"))


async def test_an_edit_that_no_watcher_may_see(home: Home) -> None:
    """No inotify instance is left: the digest at write time is the proof."""

    class Blind:
        @asynccontextmanager
        async def watch(self, _: Path) -> AsyncIterator[AsyncIterator[None]]:
            send, receive = anyio.create_memory_object_stream[None](1)
            with send, receive:
                yield receive

    path = home.remember(memory(facts=["- old."]))

    def edit(_: object) -> ForkReply:
        path.write_text(memory(facts=["- old.", "- by hand."]))
        return saying(adding("new."))

    says(home, edit)
    async with home.daemon() as daemon:
        daemon.watcher = Blind()
        await home.talk().turn("hello")
        await daemon.quiet()
        assert (await daemon.run()).merged
    assert "- by hand." in home.memory()

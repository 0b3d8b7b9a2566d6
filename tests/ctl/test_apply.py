from __future__ import annotations

import json
from typing import Any

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import Entry, add, change, memory, remove, said, topic

from memoryd.core.memory.document import BOM, new_text, repair
from memoryd.ctl.apply import Answer, Append, Case, answer, answers

CRITICAL, FACTS = "CRITICAL RULES", "Architecture & Config Facts"
TEXT = memory(["- Rule."], ["- One.", "- Two.", "- Three."], ["- Trap."])
FIELDS = {
    "outcome", "text", "topics", "added", "removed", "replaced", "created", "repaired", "skipped",
    "refused", "retired", "duplicates", "event", "status", "error",
}  # fmt: skip
NOTHING: dict[str, Any] = {
    "outcome": "no_change",
    "text": None,
    "topics": [],
    "added": 0,
    "removed": 0,
    "replaced": 0,
    "created": False,
    "repaired": False,
    "skipped": [],
    "refused": [],
    "retired": [],
    "duplicates": [],
    "event": None,
    "status": "memory: no change",
    "error": None,
}


def line(**case: object) -> bytes:
    return json.dumps({"project": "p", "memory": TEXT, "reply": said(), **case}).encode()


def answered(*lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(found) for found in answers(lines)]


def one(*ops: Entry, topics: tuple[Entry, ...] = (), **case: object) -> dict[str, Any]:
    return answered(line(reply=said(ops, topics), **case))[0]


# ── what an answer holds ───────────────────────────────────────────────────────────────────────────


def test_an_answer_has_all_its_fields() -> None:
    assert set(one()) == FIELDS


def test_nothing_to_do() -> None:
    assert one() == NOTHING


def test_changed() -> None:
    assert one(add(FACTS, "Four."), remove("- Trap."), change("- Two.", "Zwei.")) == {
        **NOTHING,
        "outcome": "changed",
        "text": TEXT.replace("- Trap.\n", "")
        .replace("Two", "Zwei")
        .replace("ee.\n", "ee.\n- Four.\n"),
        "added": 1,
        "removed": 1,
        "replaced": 1,
        "event": "MEMORY.md: 1 added, 1 removed, 1 replaced",
        "status": "memory: +1 -1 ~1",
    }


def test_created() -> None:
    assert one(add(CRITICAL, "Use bun."), memory=None) == {
        **NOTHING,
        "outcome": "changed",
        "text": new_text("p").replace("RULES\n\n", "RULES\n\n- Use bun.\n\n"),
        "added": 1,
        "created": True,
        "event": "MEMORY.md: created, 1 added",
        "status": "memory: +1",
    }


def test_no_file_and_nothing_to_keep() -> None:
    assert one(memory=None) == NOTHING


def test_topics_are_answered_as_they_are_appended() -> None:
    assert one(topics=(topic("db.md", "\n- x\n\n"), topic("db.md", "- y"))) == {
        **NOTHING,
        "outcome": "changed",
        "text": TEXT + "\n- `db.md`.\n",
        "topics": [{"file": "db.md", "append": "- x\n"}, {"file": "db.md", "append": "- y\n"}],
        "event": "MEMORY.md: topic files only; appended to db.md",
        "status": "memory: topic: db",
    }


def test_topics_hold_the_retired_rules_append_too() -> None:
    assert one(remove("- Rule."), topics=(topic("db.md", "- x"),)) == {
        **NOTHING,
        "outcome": "changed",
        "text": TEXT.replace("- Rule.\n", "") + "\n- `db.md`.\n- `history.md`.\n",
        "topics": [
            {"file": "db.md", "append": "- x\n"},
            {"file": "history.md", "append": "## Retired CRITICAL RULES\n\n- Rule.\n"},
        ],
        "removed": 1,
        "retired": ["- Rule."],
        "event": "MEMORY.md: 1 removed; appended to db.md, history.md; "
        "retired from CRITICAL RULES, kept in history.md: - Rule.",
        "status": "memory: -1 topic: db, history 1 rule(s) retired",
    }


def test_skipped_refused_and_duplicates_are_named() -> None:
    found = one({"op": "move"}, remove("- Zero."), add("Nowhere", "x"), add(FACTS, "**one**"))
    assert found == {
        **NOTHING,
        "skipped": ["- Zero."],
        "refused": [
            '{"op": "move"}: `op` is not add, remove or replace',
            "add x: no heading “Nowhere” in the file",
        ],
        "duplicates": ["- **one**"],
        "event": "MEMORY.md: no change; 1 skipped, not in the file: - Zero.; refused: "
        '{"op": "move"}: `op` is not add, remove or replace; '
        "add x: no heading “Nowhere” in the file; 1 duplicate",
        "status": "memory: no change, 1 skipped, 2 refused, 1 duplicate",
    }


def test_not_written() -> None:
    text = memory([], [f"- Fact {number}." for number in range(193)])
    found = one(change("- Fact 1.", "Fact number 1."), memory=text)
    assert found == {
        **NOTHING,
        "outcome": "not_written",
        "event": "MEMORY.md: not written: 203 lines, the limit is under 200",
        "status": "memory: error: not written: 203 lines, the limit is under 200",
        "error": "not written: 203 lines, the limit is under 200",
    }


def test_held() -> None:
    text = memory([], [f"- Fact {number}." for number in range(8)])
    found = one(*(remove(f"- Fact {number}.") for number in range(6)), memory=text)
    assert (found["outcome"], found["removed"], found["error"]) == ("held", 6, None)
    assert "- Fact 7." in found["text"]
    assert "- Fact 5." not in found["text"]
    assert found["status"] == "memory: held for review: 6 of 8 bullets would be removed"


@pytest.mark.parametrize("reply", ["", "Nothing.", '{"ops":null}', said()[:-1], "x" * 300_000])
def test_unreadable(reply: str) -> None:
    found = answered(line(reply=reply))[0]
    event = found.pop("event")
    assert found == {key: NOTHING[key] for key in found} | {"outcome": "unreadable", "status": ""}
    assert event.startswith("MEMORY.md: reply not read (")
    assert event.endswith("); kept in memory-save.failed-reply.txt")


def test_a_file_is_repaired_before_a_reply_is_read() -> None:
    text = "## Notes\n- a\n"
    for found in (answered(line(memory=text, reply="no"))[0], one(memory=text)):
        assert (found["repaired"], found["text"]) == (True, repair(text, "p"))


def test_a_mark_and_crlf_are_kept() -> None:
    text = BOM + TEXT.replace("\n", "\r\n")
    found = one(change("- Two.", "Zwei."), memory=text)
    assert found["text"] == text.replace("- Two.", "- Zwei.")


# ── quotes ─────────────────────────────────────────────────────────────────────────────────────────

QUOTED = add(CRITICAL, "Use bun.", "use bun for all scripts")


def test_without_typed_no_quotes_are_asked_for() -> None:
    assert one(add(CRITICAL, "Use bun."))["added"] == 1
    assert one(add(CRITICAL, "Use bun."), typed=None)["added"] == 1


@pytest.mark.parametrize(
    ("typed", "added"),
    [
        ([], 0),
        (["hello"], 0),
        (["please Use BUN  for all\nscripts"], 1),
        (["x", "use bun for all scripts"], 1),
    ],
)
def test_with_typed_a_rule_rests_on_a_message(typed: list[str], added: int) -> None:
    found = one(QUOTED, typed=typed)
    assert found["added"] == added
    assert len(found["refused"]) == 1 - added


# ── the input ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (b"", "line 1: not JSON: Expecting value at character 0"),
        (b" \r\n", "line 1: not JSON: Expecting value at character 3"),
        (b"rubbish", "line 1: not JSON: Expecting value at character 0"),
        (
            b"{",
            "line 1: not JSON: Expecting property name enclosed in double quotes at character 1",
        ),
        (b"\xff{}", "line 1: not UTF-8 at byte 0"),
        (b"null", "line 1: Expected `object`, got `null`"),
        (b"[]", "line 1: Expected `object`, got `array`"),
        (b"{}", "line 1: Object missing required field `project`"),
        (b'{"project":"p","reply":""}', "line 1: Object missing required field `memory`"),
        (b'{"project":"p","memory":null}', "line 1: Object missing required field `reply`"),
        (line(memory=5), "line 1: Expected `str | null`, got `int` - at `$.memory`"),
        (line(reply=None), "line 1: Expected `str`, got `null` - at `$.reply`"),
        (line(typed="x"), "line 1: Expected `array | null`, got `str` - at `$.typed`"),
        (line(typed=[1]), "line 1: Expected `str`, got `int` - at `$.typed[0]`"),
        (line(project=" "), "line 1: `project` is blank"),
        (line(project="a\n## b"), "line 1: `project` holds the character U+000A"),
    ],
)
def test_a_malformed_line_answers_its_error_and_the_run_goes_on(
    wrong: bytes, sentence: str
) -> None:
    assert answered(wrong, line()) == [{"error": sentence}, NOTHING]


def test_a_deep_line_answers_its_error() -> None:
    found = answered(b"[" * 100_000, line())
    assert set(found[0]) == {"error"}
    assert found[1] == NOTHING


def test_each_line_is_answered_in_its_place_and_errors_are_numbered() -> None:
    lines = [line(), b"x", b"\n", line(reply=said([add(FACTS, "Four.")])), b"{}\r\n"]
    found = answered(*lines)
    assert [entry.get("outcome") or entry["error"][:6] for entry in found] == [
        "no_change",
        "line 2",
        "line 3",
        "changed",
        "line 5",
    ]


def test_answers_come_as_the_lines_do() -> None:
    def endless() -> Any:
        while True:
            yield line() + b"\n"

    found = answers(endless())
    assert json.loads(next(found)) == json.loads(next(found)) == NOTHING


def test_unknown_fields_do_no_harm() -> None:
    assert answered(line(note="x")) == [NOTHING]


def test_lone_surrogates_pass() -> None:
    found = one(add(FACTS, "a\ud800"), remove("- \udfff"), memory=TEXT + "- \ud83d\n")
    assert (found["outcome"], len(found["refused"]), found["skipped"]) == ("no_change", 2, [])


def test_an_answer_is_one_line_of_ascii() -> None:
    for found in answers([line(reply=said([add(FACTS, "größer\u2028")]))]):
        assert found.isascii()
        assert "\n" not in found


@given(memories.cases(), st.sampled_from([None, [], ["please never push to main"]]))
def test_any_case_is_answered_in_shape(
    case: tuple[str | None, str], typed: list[str] | None
) -> None:
    text, reply = case
    found = answered(line(memory=text, reply=reply, typed=typed))[0]
    assert set(found) == FIELDS
    assert (found["event"] is None) == (found["outcome"] == "no_change" and not told(found))
    assert (found["error"] is None) == (found["outcome"] != "not_written")
    assert found["text"] is None or found["text"] != text or found["outcome"] == "changed"


def told(found: dict[str, Any]) -> bool:
    return any(found[name] for name in ("skipped", "refused", "duplicates"))


def test_no_repr_holds_text() -> None:
    case = Case(project="p", memory="secret", reply="secret", typed=("secret",))
    assert "secret" not in repr(Append(file="a.md", append="secret"))
    assert "secret" not in repr(case) + repr(answer(case)) + repr(
        Answer(outcome="x", text="secret")
    )

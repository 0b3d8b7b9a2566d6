from __future__ import annotations

import json
import random
import time

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import add, change, remove, said, topic

from memoryd.core.memory.reply import (
    OP_LIMIT,
    REPLY_LIMIT,
    Op,
    Refusal,
    Reply,
    TopicAppend,
    Unreadable,
    is_reserved,
    read,
)

OPS = '{"ops":[{"op":"add","section":"CRITICAL RULES","text":"x"}],"topics":[]}'
READ = Reply(ops=(Op("add", section="CRITICAL RULES", text="x"),))


def refusals(text: str) -> list[str]:
    found = read(text)
    assert isinstance(found, Reply)
    return [refusal.why for refusal in found.refused]


# ── finding the object ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        OPS,
        f"\n  {OPS}\n\n",
        f"```json\n{OPS}\n```",
        f"Here is what I learned:\n\n{OPS}",
        f"{OPS}\n\nThat is all.",
        f'I saw {{"ops":[{{"op":"remove" in the log, and {{braces}} too.\n{OPS}',
        f'The tool said {{"error": "Not logged in", "status": 429}}. So:\n{OPS}',
        f'{{"ops":[{{"op":"remove","line":"- a"}}],"topics":[]}}\nNo, rather:\n{OPS}',
        OPS.replace("{", "{\n ", 1),
        OPS.replace(',"topics":[]', ""),
    ],
)
def test_prose_and_a_fence_around_it_do_no_harm(text: str) -> None:
    assert read(text) == READ


def test_of_two_objects_the_last_is_the_reply() -> None:
    first = said([remove("- everything")])
    assert read(first + OPS) == READ


def test_an_empty_reply_object_is_read() -> None:
    assert read('{"ops":[],"topics":[]}') == Reply()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no JSON object"),
        ("Nothing was learned.", "no JSON object"),
        ("{}", "no JSON object"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        (OPS[:-1], "not valid JSON"),
        (OPS.replace(":[{", ":[{{"), "not valid JSON"),
        (OPS + " } ", "not valid JSON"),
        ("{'ops': []}", "no JSON object"),
        ('{"ops":[{"op":"add","section":"s","text":"t"}', "not valid JSON"),
        ('{"result": {"ops": []}}', "an object with neither `ops` nor `topics`"),
        ('{"ops":[NaN]}', "not valid JSON"),
        ('{"ops":[1e400,-Infinity]}', "not valid JSON"),
        ('{"ops":[],"ops":[]}', "a key stands twice"),
        ('{"ops":[],"topics":[],"x":1,"x":2}', "a key stands twice"),
        ('{"ops":null}', "`ops` is no list"),
        ('{"ops":{},"topics":[]}', "`ops` is no list"),
        ('{"ops":[],"topics":"a.md"}', "`topics` is no list"),
        ('{"topics":null}', "`topics` is no list"),
    ],
)
def test_what_is_no_reply_is_unreadable_with_its_cause(text: str, cause: str) -> None:
    assert read(text) == Unreadable(cause)


def test_an_inner_op_of_a_cut_reply_is_not_the_reply() -> None:
    cut = said([add("s", "one"), remove("- two")]).rpartition("]")[0].rpartition("]")[0]
    assert isinstance(read(cut), Unreadable)


@given(st.integers(0, len(OPS) - 1))
def test_a_reply_that_was_cut_anywhere_is_unreadable(end: int) -> None:
    assert isinstance(read(OPS[:end]), Unreadable)


def test_at_most_50_starts_are_tried() -> None:
    assert read('{"' * 49 + OPS) == READ
    assert isinstance(read('{"' * 50 + OPS), Unreadable)


def test_a_brace_without_a_quote_behind_it_is_no_start() -> None:
    assert read("{ x " * 500 + OPS) == READ


def test_over_256_kib_is_not_parsed() -> None:
    room = REPLY_LIMIT - len(OPS.encode())
    assert read(" " * room + OPS) == READ
    assert read(" " * (room + 1) + OPS) == Unreadable("over 256 KiB")
    assert read("é" * (room // 2 + 1) + OPS) == Unreadable("over 256 KiB")
    assert read("x" * 5_000_000) == Unreadable("over 256 KiB")


def test_deep_nesting_is_unreadable() -> None:
    assert isinstance(read('{"ops":' + "[" * 100_000 + "]" * 100_000 + "}"), Unreadable)
    assert isinstance(read('{"ops":' * 30_000 + "1" + "}" * 30_000), Unreadable)


@pytest.mark.parametrize(
    "entry",
    [
        '{"op":"remove","line":"- a","line":"- b"}',
        '{"op":"add","op":"remove","line":"- b","section":"s","text":"t"}',
        '{"file":"a.md","file":"b.md","append":"x"}',
    ],
)
def test_an_entry_with_a_key_twice_is_refused_alone(entry: str) -> None:
    good, other = ("topics", "ops") if "file" in entry else ("ops", "topics")
    rest = json.dumps(topic("c.md", "y") if "file" in entry else remove("- c"))
    found = read(f'{{"{good}":[{entry},{rest}],"{other}":[]}}')
    assert isinstance(found, Reply)
    assert [refusal.why for refusal in found.refused] == ["a key stands twice"]
    assert len(found.ops) + len(found.topics) == 1


def test_a_deep_entry_is_refused_and_named() -> None:
    deep = "[" * 600 + "]" * 600
    assert refusals(f'{{"ops":[{deep},{{"op":"remove","line":"a"}}]}}') == ["no object"]


@pytest.mark.parametrize(
    "text",
    [
        '{"' * 87_000,
        '{ "' * 60_000 + "}",
        '{"a":' * 40_000 + "}",
        '{"ops":["' + "\\u12" * 50_000 + "}",
        ('{"ops":[' + '{"op":"add"},' * 18_000) + "}",
        '{"' + "{" * 130_000 + "}" * 120_000,
        "{" + " " * 250_000 + "}",
        '{"ops":[' + "1" * 200_000 + "]}",
        '{"ops":[' + "1." + "1" * 200_000 + "]}",
        "\ud800" * 80_000 + "{}",
    ],
    ids=range(10),
)
def test_hostile_replies_are_read_in_bounded_time(text: str) -> None:
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 10


@given(st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_random_bytes_never_raise(text: str) -> None:
    read(text)


@given(st.data())
def test_a_mutated_reply_never_raises(data: st.DataObject) -> None:
    text = data.draw(memories.answers(memories.memory(["- a"], ["- b"])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(
            st.sampled_from(["", "{", "}", '"', "\\", "[", "null", "\ud800", "{" * 2_000])
        )
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 3)) :]
    found = read(text)
    assert isinstance(found, Reply | Unreadable)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["op", "ops", "topics", "line", "text", "file"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_any_json_in_the_lists_never_raises(ops: object, topics: object) -> None:
    found = read(json.dumps({"ops": ops, "topics": topics}))
    assert isinstance(found, Reply | Unreadable)


# ── entries ────────────────────────────────────────────────────────────────────────────────────────


def test_each_kind_of_op_is_read_with_its_fields() -> None:
    text = said(
        [add("s", "t", "because"), remove("l"), change("l", "t")], [topic(" db.md ", "\n# x\n\n")]
    )
    assert read(text) == Reply(
        ops=(
            Op("add", section="s", text="t", because="because"),
            Op("remove", line="l"),
            Op("replace", line="l", text="t"),
        ),
        topics=(TopicAppend("db.md", "# x"),),
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("add", "no object"),
        (None, "no object"),
        ([], "no object"),
        ({}, "`op` is not add, remove or replace"),
        ({"op": "move", "line": "a"}, "`op` is not add, remove or replace"),
        ({"op": ["add"]}, "`op` is not add, remove or replace"),
        ({"op": "ADD", "section": "s", "text": "t"}, "`op` is not add, remove or replace"),
        ({"op": "add", "text": "t"}, "`section` is missing"),
        ({"op": "add", "section": "s", "text": None}, "`text` is missing"),
        ({"op": "add", "section": 1, "text": "t"}, "`section` is no text"),
        ({"op": "add", "section": "s", "text": " \t"}, "`text` is blank"),
        ({"op": "add", "section": "s", "text": "a\nb"}, "`text` has a line break"),
        ({"op": "add", "section": "s", "text": "a\r\nb"}, "`text` has a line break"),
        ({"op": "remove"}, "`line` is missing"),
        ({"op": "remove", "line": "- a\n"}, "`line` has a line break"),
        ({"op": "replace", "line": "- a"}, "`text` is missing"),
        (
            {"op": "replace", "line": "- a", "text": "\ud800"},
            "`text` holds a character that no file can",
        ),
    ],
)
def test_an_entry_of_another_shape_is_refused_and_the_rest_kept(entry: object, why: str) -> None:
    text = json.dumps({"ops": [entry, add("s", "t")]})
    found = read(text)
    assert isinstance(found, Reply)
    assert found.ops == (Op("add", section="s", text="t"),)
    assert [refusal.why for refusal in found.refused] == [why]
    assert found.refused[0].what == json.dumps(entry, ensure_ascii=False).replace(
        "\ud800", "\ufffd"
    )


def test_a_quote_that_is_no_text_is_none() -> None:
    found = read(json.dumps({"ops": [{"op": "remove", "line": "a", "because": ["x"]}]}))
    assert isinstance(found, Reply)
    assert found.ops == (Op("remove", line="a"),)


@pytest.mark.parametrize(
    "file", ["db.md", "a", "0.md", "a.b-c_d.md", "x" * 197 + ".md", " db.md\n"]
)
def test_a_topics_name_is_trimmed_and_plain(file: str) -> None:
    expected = [] if file.strip().endswith(".md") else ["`file` is no topic file's name"]
    assert refusals(said([], [topic(file, "x")])) == expected


@pytest.mark.parametrize(
    "file",
    [
        "", ".md", "DB.md", "../db.md", "a/b.md", "/etc/x.md", ".hidden.md", "-a.md", "db.txt",
        "db.md\n.md", "db.md.txt", "d b.md", "größe.md", "db.MD", "a\\b.md", "db.md\x00", "~.md",
    ],
)  # fmt: skip
def test_any_other_name_is_refused(file: str) -> None:
    assert refusals(said([], [topic(file, "x")])) == ["`file` is no topic file's name"]


@pytest.mark.parametrize(
    "file",
    [
        "memory.md",
        "memory.pre-migration.md",
        "memory.pre-migration-2.md",
        "memory.pre-migration-17.md",
    ],
)
def test_memory_md_and_its_backups_are_no_topics(file: str) -> None:
    assert is_reserved(file)
    assert is_reserved(file.upper())
    assert refusals(said([], [topic(file, "x")])) == [
        "`file` is a name that memoryd keeps for itself"
    ]


def test_names_that_only_look_reserved_are_free() -> None:
    assert not any(map(is_reserved, ("memory-x.md", "my-memory.md", "memory.pre-migration-x.md")))


def test_a_name_that_no_file_system_takes_is_refused() -> None:
    assert refusals(said([], [topic("x" * 198 + ".md", "x")])) == ["`file` has over 200 characters"]


@pytest.mark.parametrize(
    ("append", "why"),
    [
        (None, "`append` is missing"),
        (1, "`append` is no text"),
        ("", "`append` is blank"),
        (" \n\t", "`append` is blank"),
        ("x" * 20_001, "`append` has 20,001 characters, the limit is 20,000"),
        ("a\udc80", "`append` holds a character that no file can"),
    ],
)
def test_an_append_is_text_of_at_most_20_000_characters(append: object, why: str) -> None:
    assert refusals(json.dumps({"topics": [{"file": "a.md", "append": append}]})) == [why]
    assert refusals(said([], [topic("a.md", "x" * 20_000 + "\n")])) == []


def test_an_append_is_trimmed_and_has_newlines_only() -> None:
    assert read(said([], [topic("a.md", "\r\n- a\r\n- b\r\n")])) == Reply(
        topics=(TopicAppend("a.md", "- a\n- b"),)
    )


def test_a_reply_has_at_most_200_ops_and_20_topics() -> None:
    text = said(
        [remove(f"- {number}") for number in range(203)], [topic(f"{n}.md", "x") for n in range(21)]
    )
    found = read(text)
    assert isinstance(found, Reply)
    assert (len(found.ops), len(found.topics)) == (200, 20)
    assert [str(refusal) for refusal in found.refused] == [
        f"3 more ops: a reply has at most {OP_LIMIT}",
        "1 more topics: a reply has at most 20",
    ]


# ── what it shows ──────────────────────────────────────────────────────────────────────────────────


def test_a_refusal_names_60_characters() -> None:
    assert str(Refusal("x" * 61, "why", "add")) == f"add {'x' * 60}…: why"
    assert str(Refusal("x" * 60, "why")) == f"{'x' * 60}: why"


def test_no_repr_holds_text() -> None:
    found = read(
        said(
            [add("s", "secret words")], [topic("a.md", "secret words"), topic("X", "secret words")]
        )
    )
    assert "secret" not in repr(found)


def test_the_seeded_mutator_finds_no_crash() -> None:
    chance = random.Random(11)
    seed = said([add("s", "t"), remove("- x"), change("- a", "b")], [topic("a.md", "- y")])
    for _ in range(2_000):
        letters = list(seed)
        for _ in range(chance.randrange(1, 6)):
            letters[chance.randrange(len(letters))] = chance.choice('{}[]",:\\ntrue1.eE-\x00\ud83d')
        assert isinstance(read("".join(letters)), Reply | Unreadable)

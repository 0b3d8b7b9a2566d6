"""The canonical rendering: its form, that nothing in it can be forged, that it only grows."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcripts import Rows

from memoryd.core.transcript import (
    INPUT_LIMIT,
    MESSAGE_LIMIT,
    RESULT_LIMIT,
    Media,
    Reading,
    Text,
    ToolResult,
    Who,
    clean,
    clip,
    holds,
    render,
)

LABEL = re.compile(r"^(?:[A-Z][A-Z ]*|TOOL \S+): ")


def rendered(reading: Reading, last_answer: str = "", prompt: str = "") -> tuple[str, ...]:
    return render(reading.conversation, mask=str, last_answer=last_answer, prompt=prompt)


def test_a_turn_is_one_text() -> None:
    rows = Rows()
    rows.user("fix the test\nit fails")
    rows.model("I look.")
    rows.call("a", "Bash", "command: pytest\ndescription: run")
    rows.result("a", "1 failed\n\nsee above")
    rows.model("Fixed.")
    rows.user("thanks")
    rows.user("a task ended", "notice")
    assert rendered(rows.reading()) == (
        "USER: fix the test\n  it fails\n"
        "ASSISTANT: I look.\n"
        "TOOL Bash: command: pytest\n  description: run\n"
        "RESULT: 1 failed\n\n  see above\n"
        "ASSISTANT: Fixed.\n",
        "USER: thanks\n",
        "NOTICE: a task ended\n",
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"command":"ls -l","description":"List"}', "command: ls -l\n  description: List"),
        ('{"content":"KEY=\\nghp_x","count":3}', "content: KEY=\n  ghp_x\n  count: 3"),
        ('{"deep":{"é":[1]}}', 'deep: {"é": [1]}'),
        ("{}", ""),
        ("[1, 2]", "[1, 2]"),
        ('{"cut', '{"cut'),
        ("", ""),
    ],
)
def test_the_input_of_a_call_is_shown_by_name(given: str, shown: str) -> None:
    rows = Rows()
    rows.call("a", "Bash", given)
    assert rendered(rows.reading())[0].startswith(f"TOOL Bash: {shown}\nERROR: ")


def test_a_long_input_is_cut() -> None:
    rows = Rows()
    rows.call("a", "Write", json.dumps({"a": "word " * 4_000, "b": "word " * 4_000}))
    assert len(rendered(rows.reading())[0]) < INPUT_LIMIT + 200


def test_a_late_result_and_words_beside_one_are_shown() -> None:
    rows = Rows()
    rows.user("go")
    rows.add("r", author="tool", blocks=(ToolResult("lost", "late", error=False), Text("beside")))
    rows.add("m", author="assistant", blocks=(Media("image", "image/png"),))
    assert rendered(rows.reading()) == (
        "USER: go\nRESULT: late\nRESULT: beside\nASSISTANT: [image image/png]\n",
    )


def test_each_result_follows_its_call() -> None:
    rows = Rows()
    rows.user("go")
    rows.call("a", "Read", "file: x", message="m")
    second = rows.call("b", "Bash", "command: y", message="m")
    rows.result("b", "of b", parent=second)
    rows.add("r", author="tool", blocks=(ToolResult("a", "of a", error=True),))
    assert rendered(rows.reading())[0].split("\n")[1:5] == [
        "TOOL Read: file: x",
        "ERROR: of a",
        "TOOL Bash: command: y",
        "RESULT: of b",
    ]


def test_media_and_marks_of_the_host() -> None:
    rows = Rows()
    rows.add(
        "u",
        author="human",
        blocks=(Text("see"), Media("image", "image/png"), Media("document", "")),
    )
    rows.user("[Request interrupted by user]", "interrupt")
    rows.user("<command-name>/model</command-name>", "command")
    rows.user("all before", "summary")
    assert rendered(rows.reading()) == (
        "USER: see\n  [image image/png]\n  [document]\nINTERRUPTED: [Request interrupted by user]\n",
        "COMMAND: /model\n",
        "SUMMARY OF THE CONVERSATION BEFORE: all before\n",
    )


@given(st.text(st.sampled_from("USER: \n\r\t\x0b\x0c\x1c\x85\u2028\u2029\u200bx"), max_size=60))
def test_no_text_can_forge_a_label(text: str) -> None:
    rows = Rows()
    rows.user(text)
    rows.model(text)
    rows.call("a", f"Bash\n{text}", text)
    rows.result("a", text)
    (turn,) = rendered(rows.reading())
    expected = (
        ["USER", "ASSISTANT", "TOOL", "RESULT"]
        if clean(text).strip()
        else ["USER", "TOOL", "RESULT"]
    )
    labels = [line for line in turn.splitlines() if line[:1].strip()]
    assert [line.split(":")[0].split(" ")[0] for line in labels] == expected


def test_masking_sees_each_text_alone_and_cleaned() -> None:
    rows = Rows()
    rows.user("key sk-1\u200b23\nnext")
    rows.model("none")
    seen: list[str] = []

    def mask(text: str) -> str:
        seen.append(text)
        return text.replace("sk-123", "[redacted:key]")

    assert render(rows.reading().conversation, mask=mask)[0] == (
        "USER: key [redacted:key]\n  next\nASSISTANT: none\n"
    )
    assert seen == ["key sk-123\nnext", "none"]


# ── the last answer ────────────────────────────────────────────────────────────────────────────────


def _asked(*answers: str) -> Rows:
    rows = Rows()
    for place, answer in enumerate(answers):
        rows.user(f"question {place}", prompt=f"p{place}")
        if answer:
            rows.model(answer)
    return rows


def test_an_answer_that_is_not_in_the_transcript_yet_is_added() -> None:
    late, there = _asked("yes", ""), _asked("yes", "no")
    assert rendered(late.reading(), " no\n") == rendered(there.reading())
    assert rendered(late.reading(), "no", "p1") == rendered(there.reading())
    assert not holds(late.reading().conversation, "no")


def test_an_answer_behind_a_tool_is_added_though_the_same_words_stood_before_it() -> None:
    rows = _asked("ok")
    rows.call("a")
    rows.result("a")
    assert rendered(rows.reading(), "ok")[0].endswith("RESULT: done\nASSISTANT: ok\n")


def test_an_answer_that_is_there_is_not_added() -> None:
    rows = _asked("yes", "no")
    assert rendered(rows.reading(), "no") == rendered(rows.reading())
    assert holds(rows.reading().conversation, "no", "p1")


def test_an_answer_is_not_put_under_a_prompt_that_came_after_it() -> None:
    rows = _asked("yes", "")
    assert rendered(rows.reading(), "yes") == rendered(rows.reading())
    assert rendered(rows.reading(), "yes", "p0") == rendered(rows.reading())


def test_the_same_answer_twice_is_told_apart_by_the_prompt() -> None:
    late, there = _asked("done", ""), _asked("done", "done")
    assert rendered(late.reading(), "done", "p1") == rendered(there.reading())


def test_an_answer_without_any_row_stands_alone() -> None:
    assert rendered(Rows().reading(), "hello") == ("ASSISTANT: hello\n",)
    assert rendered(Rows().reading(), "") == ()


def test_a_long_answer_is_cut_as_its_row_will_be() -> None:
    answer = "word " * MESSAGE_LIMIT
    there = _asked(clip(answer.strip(), MESSAGE_LIMIT))
    assert rendered(_asked("").reading(), answer) == rendered(there.reading())


def test_an_answer_that_was_masked_or_cut_before_is_known() -> None:
    def mask(text: str) -> str:
        return text.replace("sk-123", "[redacted:key]")

    there = _asked("the key is sk-123").reading().conversation
    texts = render(there, mask=mask)
    assert render(there, mask=mask, last_answer=mask("the key is sk-123")) == texts
    long = " ".join(f"word{n}" for n in range(5_000))
    there = _asked(clip(long, MESSAGE_LIMIT)).reading().conversation
    assert holds(there, long[-MESSAGE_LIMIT:])


# ── append-only ────────────────────────────────────────────────────────────────────────────────────

_TEXTS = st.text(st.sampled_from("ab \nU:"), max_size=12)
_TURNS = st.lists(
    st.tuples(
        st.sampled_from(["human", "sdk", "notice", "command"]),
        _TEXTS,
        st.lists(st.integers(1, 3), max_size=3),
        _TEXTS,
        st.sampled_from(["answer", "late", "interrupted", "rejected", "error"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


Asked = tuple[Who, str, list[int], str, str, bool]


@given(_TURNS, st.sampled_from(["plain", "compacted"]))
def test_a_longer_transcript_starts_with_the_shorter_one(turns: list[Asked], kind: str) -> None:
    rows = Rows()
    rows.user("before", prompt="first")
    if kind == "compacted":
        rows.compaction()
    earlier: list[tuple[str, ...]] = []
    for place, (who, question, batches, answer, end, queued) in enumerate(turns):
        rows.user(question, who, prompt=f"p{place}")
        for batch, width in enumerate(batches):
            _run_tools(rows, f"{place}.{batch}", width, complete=end != "rejected")
        if queued:
            rows.user("queued meanwhile")
        late = _end(rows, answer, end)
        earlier.append(rendered(rows.reading(), late, f"p{place}"))
        if late:
            rows.model(late)
        rows.link()
    whole = rendered(rows.reading())
    for texts in earlier:
        assert whole[: len(texts)] == texts
        assert "".join(whole).startswith("".join(texts))


def _run_tools(rows: Rows, name: str, width: int, *, complete: bool) -> None:
    rows.model("a look", message=name)
    calls = [rows.call(f"{name}.{n}", message=name) for n in range(width)]
    for n, call in reversed(list(enumerate(calls))):
        if complete or n:
            rows.result(f"{name}.{n}", parent=call)


def _end(rows: Rows, answer: str, end: str) -> str:
    """Ends the turn; the answer that is not written yet."""
    match end:
        case "answer":
            rows.model(answer)
        case "late":
            return answer.strip()
        case "interrupted" | "rejected":
            rows.user("[Request interrupted by user]", "interrupt")
        case _:
            rows.link()
    return ""


# ── cutting ────────────────────────────────────────────────────────────────────────────────────────


@given(st.text(st.sampled_from("ab \n"), max_size=400), st.integers(30, 200))
def test_a_cut_is_marked(text: str, limit: int) -> None:
    cut = clip(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    head, tail = cut.split("\n[… cut …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(cut) <= limit


def test_a_cut_leaves_no_half_of_a_word() -> None:
    cut = clip(" ".join(f"token{n:05}" for n in range(1_000)), RESULT_LIMIT)
    assert all(re.fullmatch(r"token\d{5}", word) for word in cut.split() if word.startswith("tok"))


@pytest.mark.parametrize(
    "end", ["", "-----END PRIVATE KEY-----", "-----END X-----\nand some words"]
)
def test_of_a_key_no_tail_is_kept(end: str) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "abcdefgh\n" * 500 + end
    assert clip(key, RESULT_LIMIT).endswith("\n[… cut …]\n")


def test_words_far_behind_a_key_are_kept() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nabcd\n-----END PRIVATE KEY-----\n" + "some words\n" * 500
    assert clip(key, RESULT_LIMIT).endswith("some words\n")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\u202eb\U000e0041c\x00d\ud800e", "abcde"),
        ("tab\tand é 漢", "tab\tand é 漢"),
    ],
)
def test_what_can_not_be_seen_goes(text: str, seen: str) -> None:
    assert clean(text) == seen

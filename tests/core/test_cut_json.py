from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.cut_json import clean, closed

TEXTS = frozenset({"prompt"})
EVENT = {
    "session_id": "0f8fad5b",
    "transcript_path": "/home/u/.claude/projects/-p/0f8fad5b.jsonl",
    "cwd": "/home/u/p",
    "permission": {"mode": "default", "levels": [1, 2, {"x": None}]},
    "duration": 1234,
    "stop_hook_active": False,
    "prompt": 'Überall „Anführung“ \\ "quote" 😀 \n end',
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def read(data: bytes | None) -> dict[str, Any]:
    assert data is not None
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("ascii_only", [True, False])
def test_every_cut_gives_only_true_members(*, ascii_only: bool) -> None:
    data = json.dumps(EVENT, ensure_ascii=ascii_only).encode()
    for end in range(len(data)):
        mended = closed(data[:end], prefixes=TEXTS)
        for name, value in (read(clean(mended)) if mended else {}).items():
            if name == "prompt":
                assert EVENT["prompt"].startswith(value.removesuffix("\ufffd"))  # type: ignore[attr-defined]
            else:
                assert value == EVENT[name]


def test_a_cut_prompt_keeps_its_beginning() -> None:
    assert read(closed(b'{"session_id": "s", "prompt": "do thi', prefixes=TEXTS)) == {
        "session_id": "s",
        "prompt": "do thi",
    }


@pytest.mark.parametrize("tail", [rb"\\", rb"\u00", rb"\u", "ü".encode()[:1]])
def test_a_cut_within_a_character_drops_that_character(tail: bytes) -> None:
    kept = r"\\" if tail == rb"\\" else ""
    cut = b'{"prompt": "ab' + tail
    assert closed(cut, prefixes=TEXTS) == f'{{"prompt": "ab{kept}"}}'.encode()


def test_half_a_path_is_left_out() -> None:
    cut = b'{"session_id":"s","transcript_path":"/home/u/.cla'
    assert read(closed(cut, prefixes=TEXTS)) == {"session_id": "s"}


@pytest.mark.parametrize("cut", ["1", "-1", "12", "1.5", "1e", "1e+", "1.", "1e+1"])
def test_a_number_that_may_go_on_is_left_out(cut: str) -> None:
    assert closed(f'{{"a": true, "n": {cut}'.encode(), prefixes=TEXTS) == b'{"a": true}'
    assert closed(f'{{"n": {cut}'.encode(), prefixes=TEXTS) is None


def test_a_number_before_a_comma_is_whole() -> None:
    assert read(closed(b'{"a": true, "n": 12,', prefixes=TEXTS)) == {"a": True, "n": 12}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b'{"a',
        b'{"a":',
        b'{"a":"x',
        b"\xff\xfe",
        b'"{',
        b"[{",
        b"{1:2}",
    ],
)
def test_what_holds_nothing_whole_is_none(data: bytes) -> None:
    assert closed(data, prefixes=TEXTS) is None


def test_a_byte_order_mark_is_no_harm() -> None:
    assert closed(b'\xef\xbb\xbf{"a": 1, ', prefixes=TEXTS) == b'{"a": 1}'


@pytest.mark.parametrize("filler", [b"[", b'{"a":', b"\\", b" ", b"\\ud800", b"1", b"[[],"])
def test_the_time_is_bounded(filler: bytes) -> None:
    data = b'{"session_id": "s", "tool_calls": ' + filler * (256 * 1024 // len(filler))
    started = time.process_time()
    mended = closed(data, prefixes=TEXTS)
    clean(data)
    assert time.process_time() - started < 10
    assert mended == b'{"session_id": "s"}'


@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=1), st.data())
def test_a_whole_object_stays_and_a_cut_one_is_a_part_of_it(
    members: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(members).encode()
    assert read(closed(text, prefixes=frozenset())) == members
    cut = text[: data.draw(st.integers(0, len(text)))]
    mended = closed(cut, prefixes=frozenset())
    for name, value in (read(mended) if mended else {}).items():
        assert members[name] == value


@given(st.binary(max_size=200))
def test_rubbish_never_raises(data: bytes) -> None:
    mended = closed(b'{"prompt": "' + data, prefixes=TEXTS)
    assert mended is not None
    assert set(json.loads(mended, strict=False)) >= {"prompt"}
    closed(data, prefixes=TEXTS)
    clean(data)


def test_mutated_events_never_raise_and_stay_json() -> None:
    rng = random.Random(5)
    base = json.dumps(EVENT).encode()
    for _ in range(3000):
        data = bytearray(base[: rng.randrange(len(base) + 1)])
        for _ in range(rng.randrange(4)):
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        mended = closed(bytes(data), prefixes=TEXTS)
        if mended is not None:
            assert isinstance(json.loads(clean(mended)), dict)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\ud800\ud83d\ude00"', "\ufffd😀"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (rb'"\n\uDBFFx"', "\n\ufffdx"),
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
    ],
)
def test_clean_replaces_what_a_strict_decoder_refuses(body: bytes, expected: str) -> None:
    assert msgspec.json.decode(clean(body), type=str) == expected


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_makes_any_dumped_text_decodable(text: str) -> None:
    assert isinstance(msgspec.json.decode(clean(json.dumps(text).encode()), type=str), str)


@given(st.text())
def test_clean_leaves_a_sound_text_alone(text: str) -> None:
    body = json.dumps(text).encode()
    assert clean(body) == body

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.adapters.forks.stream import Outcome, Reading
from memoryd.ports import ForkFailure, ForkReply
from memoryd.protocol import Usage

NOW = 1_000.0
MODEL = "claude-opus-5-5"
TOKENS = {
    "input_tokens": 11,
    "cache_read_input_tokens": 33,
    "cache_creation_input_tokens": 22,
    "output_tokens": 44,
}
USAGE = Usage(input=11, cache_read=33, cache_write=22, output=44)
TWICE = Usage(input=22, cache_read=66, cache_write=44, output=88)


def read(*lines: Any) -> Outcome:
    """The outcome of a run that says `lines`, each a JSON value or raw bytes."""
    reading = Reading(NOW)
    for line in lines:
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        if outcome := reading.take(data):
            return outcome
    return reading.ended()


def event(**fields: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": fields}


def assistant(text: str, model: str = MODEL, **fields: Any) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": ""}, {"type": "text", "text": text}]
    message = {"model": model, "content": content, "usage": TOKENS}
    return {"type": "assistant", "message": message, **fields}


def message(text: str, stop_reason: str) -> list[dict[str, Any]]:
    """The lines of one answer of the model."""
    begun = {"model": MODEL, "content": [], "usage": {**TOKENS, "output_tokens": 1}}
    return [
        event(type="message_start", message=begun),
        event(type="content_block_delta", delta={"type": "text_delta", "text": text}),
        assistant(text),
        event(type="message_delta", delta={"stop_reason": stop_reason}, usage=TOKENS),
        event(type="message_stop"),
    ]


def result(text: str | None, *, is_error: bool = False, **fields: Any) -> dict[str, Any]:
    subtype = fields.pop("subtype", "success")
    usage = {**fields.pop("usage", TOKENS), "service_tier": "standard"}
    return {
        "type": "result",
        "subtype": subtype,
        "is_error": is_error,
        "result": text,
        "num_turns": 1,
        "usage": usage,
        **fields,
    }


def error(**fields: Any) -> dict[str, Any]:
    return result("words that decide nothing", is_error=True, **fields)


def test_a_reply_has_the_results_text_its_model_and_its_cost() -> None:
    lines = message('{"ops": []}', "end_turn")
    assert read({"type": "system", "subtype": "init"}, *lines, result('{"ops": []}')) == ForkReply(
        '{"ops": []}', MODEL, USAGE
    )


@pytest.mark.parametrize("text", ["", " \n", None])
def test_no_text_is_empty(text: str | None) -> None:
    outcome = read(*message("", "end_turn"), result(text))
    assert outcome == ForkFailure("empty", usage=USAGE, model=MODEL)


def test_an_answer_that_was_cut_ends_the_run_before_the_client_asks_for_the_rest() -> None:
    outcome = read(*message('{"ops": [', "max_tokens"), result("the rest"))
    assert outcome == ForkReply('{"ops": [', MODEL, USAGE, "cut")


def test_a_refusal_ends_the_run_before_the_client_asks_again() -> None:
    outcome = read(*message("I will not", "refusal"), result("reworded"))
    assert outcome == ForkFailure("refused", usage=USAGE, model=MODEL)


def test_an_attempt_to_use_a_tool_is_paid_for_too() -> None:
    lines = [*message("let me look", "tool_use"), *message('{"ops": [', "max_tokens")]
    assert read(*lines) == ForkReply('{"ops": [', MODEL, TWICE, "cut")


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_an_overloaded_api_is_left_to_our_own_back_off(status: int) -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": status}
    outcome = read({**retry, "retry_delay_ms": 30_500, "error": "rate_limit"}, result("later"))
    assert outcome == ForkFailure("transient", status, "", 30.5)


@pytest.mark.parametrize("status", [401, None])
def test_a_login_that_is_renewed_and_a_lost_connection_are_the_clients_business(
    status: int | None,
) -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": status}
    assert read({**retry, "retry_delay_ms": 500}, *message("ok", "end_turn"), result("ok")) == (
        ForkReply("ok", MODEL, USAGE)
    )


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        (
            {"api_error_status": 401, "api_error_type": "authentication_error"},
            ForkFailure("credentials", 401, "authentication_error"),
        ),
        (
            {"api_error_status": 402, "api_error_type": "billing_error"},
            ForkFailure("credentials", 402, "billing_error"),
        ),
        (
            {"api_error_status": 529, "api_error_type": "overloaded_error"},
            ForkFailure("transient", 529, "overloaded_error"),
        ),
        (
            {"api_error_status": 400, "api_error_type": "invalid_request_error"},
            ForkFailure("too_long", 400, "invalid_request_error"),
        ),
        (
            {"terminal_reason": "prompt_too_long", "api_error_status": 400},
            ForkFailure("too_long", 400),
        ),
        ({"terminal_reason": "blocking_limit"}, ForkFailure("too_long")),
        (
            {"api_error_status": 404, "api_error_type": "not_found_error"},
            ForkFailure("rejected", 404, "not_found_error"),
        ),
        ({"api_error": "connection_failed"}, ForkFailure("transient")),
        ({"api_error": "max_output_tokens"}, ForkFailure("cut")),
        ({"stop_reason": "refusal"}, ForkFailure("refused")),
        ({"subtype": "error_max_turns", "terminal_reason": "max_turns"}, ForkFailure("empty")),
        ({"subtype": "error_during_execution", "num_turns": 0}, ForkFailure("nothing")),
        (
            {
                "subtype": "error_during_execution",
                "num_turns": 0,
                "startup_failure_reason": "cli_version_too_old",
            },
            ForkFailure("rejected", type="cli_version_too_old"),
        ),
        (
            {
                "subtype": "error_during_execution",
                "num_turns": 0,
                "startup_failure_reason": "gateway_signin_required",
            },
            ForkFailure("credentials", type="gateway_signin_required"),
        ),
        ({}, ForkFailure("transient")),
    ],
)
def test_a_failed_run_is_told_by_status_type_and_reason(
    fields: dict[str, Any], failure: ForkFailure
) -> None:
    assert read(error(usage={}, **fields)) == failure


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("authentication_failed", "credentials"),
        ("billing_error", "credentials"),
        ("rate_limit", "transient"),
        ("server_error", "transient"),
        ("unknown", "transient"),
        ("invalid_request", "rejected"),
        ("model_not_found", "rejected"),
    ],
)
def test_without_a_status_the_clients_own_word_decides(word: str, kind: str) -> None:
    outcome = read(
        assistant("Not logged in", "<synthetic>", error=word),
        error(terminal_reason="api_error"),
    )
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status, outcome.type) == (kind, 0, word)


def test_a_subscription_waits_for_its_reset() -> None:
    limit = {"status": "rejected", "resetsAt": NOW + 5_000, "rateLimitType": "five_hour"}
    outcome = read(
        {"type": "rate_limit_event", "rate_limit_info": limit},
        assistant("You've hit your limit", "<synthetic>", error="rate_limit"),
        error(api_error_status=429, api_error_type="rate_limit_error", usage={}),
    )
    assert outcome == ForkFailure("transient", 429, "rate_limit_error", 5_000.0)


def test_a_warning_of_a_limit_is_no_limit() -> None:
    limit = {"status": "allowed_warning", "resetsAt": NOW + 5_000}
    outcome = read(
        {"type": "rate_limit_event", "rate_limit_info": limit},
        error(api_error_status=529, api_error_type="overloaded_error", usage={}),
    )
    assert outcome == ForkFailure("transient", 529, "overloaded_error")


def test_words_of_a_text_decide_nothing() -> None:
    words = "API Error: 429 Not logged in · Please run /login. Prompt is too long"
    assert read(*message(words, "end_turn"), result(words)) == ForkReply(words, MODEL, USAGE)


def test_a_run_without_a_last_line_is_transient_and_keeps_its_cost() -> None:
    assert read() == ForkFailure("transient", type="no_result")
    assert read(*message("half", "end_turn")) == ForkFailure(
        "transient", type="no_result", usage=USAGE, model=MODEL
    )


def test_a_lone_surrogate_is_mended() -> None:
    outcome = read(*message("x", "end_turn"), result("half \ud83d pair"))
    assert isinstance(outcome, ForkReply)
    assert outcome.text == "half \ufffd pair"


def test_null_counts_are_none() -> None:
    nulls: dict[str, Any] = dict.fromkeys(TOKENS)
    assert read(result("ok", usage=nulls)) == ForkReply("ok", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    ["system", "stream_event", "assistant", "user", "result", "rate_limit_event", "other"]
)
names = st.sampled_from(
    ["message", "event", "usage", "result", "is_error", "subtype", "error", "rate_limit_info"]
)


@given(
    lines=st.lists(
        st.binary(max_size=40)
        | json_values.map(lambda value: json.dumps(value).encode())
        | st.builds(
            lambda kind, fields: json.dumps({**fields, "type": kind}).encode(),
            kinds,
            st.dictionaries(names, json_values, max_size=4),
        ),
        max_size=6,
    )
)
def test_no_line_raises(lines: list[bytes]) -> None:
    read(*lines, b"[" * 100_000)

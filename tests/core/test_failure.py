from __future__ import annotations

from itertools import accumulate, pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.failure import (
    LONGEST_DELAY,
    FailureKind,
    classify,
    next_delay,
    remedy,
    sentence,
)

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


@pytest.mark.parametrize(
    ("status", "type_", "kind"),
    [
        (0, "", "transient"),
        (0, "connection_failed", "transient"),
        (0, "authentication_failed", "credentials"),
        (400, "invalid_request_error", "too_long"),
        (400, "billing_error", "credentials"),
        (400, "organization_on_hold", "credentials"),
        (400, "", "rejected"),
        (401, "authentication_error", "credentials"),
        (401, "", "credentials"),
        (402, "billing_error", "credentials"),
        (403, "permission_error", "credentials"),
        (404, "not_found_error", "rejected"),
        (408, "", "transient"),
        (413, "request_too_large", "too_long"),
        (422, "", "rejected"),
        (429, "rate_limit_error", "transient"),
        (429, "enforced_spend_limit_reached", "credentials"),
        (500, "api_error", "transient"),
        (502, "", "transient"),
        (504, "timeout_error", "transient"),
        (529, "overloaded_error", "transient"),
    ],
)
def test_a_class_follows_from_status_and_type(status: int, type_: str, kind: FailureKind) -> None:
    assert classify(status, type_) == kind


@pytest.mark.parametrize(
    ("status", "type_", "words"),
    [
        (529, "overloaded_error", "the fork got an API error, 529 (overloaded)"),
        (429, "rate_limit_error", "the fork got an API error, 429 (rate limit)"),
        (401, "authentication_error", "the fork got an API error, 401 (authentication)"),
        (400, "invalid_request_error", "the fork got an API error, 400 (invalid request)"),
        (503, "", "the fork got an API error, 503 (unavailable)"),
        (418, "", "the fork got an API error, 418"),
        (0, "", "the fork got an API error, no response"),
        (0, "connection_failed", "the fork got an API error, no response"),
        (0, "authentication_failed", "the fork got an API error, authentication failed"),
        (500, "\x1b[31mred", "the fork got an API error, 500 (server error)"),
        (429, "sk-ant-secret", "the fork got an API error, 429 (rate limit)"),
    ],
)
def test_an_api_error_is_named_by_its_status_and_kind(status: int, type_: str, words: str) -> None:
    assert sentence(classify(status, type_), status, type_) == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nothing", "there is nothing to fork yet"),
        ("empty", "the fork's reply was empty"),
        ("cut", "the fork was cut before its reply"),
        ("refused", "the fork was refused by the model"),
        ("rejected", "the fork could not start"),
    ],
)
def test_a_fork_without_a_text_is_named(kind: FailureKind, words: str) -> None:
    assert sentence(kind, 0, "") == words


def test_a_start_that_failed_is_named_by_its_reason() -> None:
    assert sentence("rejected", 0, "cwd_unavailable") == (
        "the fork could not start (cwd unavailable)"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["claude", "digest"])
def test_only_a_credential_asks_for_something_to_do(kind: FailureKind, backend: str) -> None:
    assert bool(remedy(kind, backend)) == (kind == "credentials")


@given(jitters=st.lists(st.floats(0, 1), min_size=20, max_size=20))
def test_at_most_six_requests_leave_within_ten_minutes(jitters: list[float]) -> None:
    delays = [next_delay(number, 0.0, jitter) for number, jitter in enumerate(jitters, 1)]
    sent = [0.0, *accumulate(delays)]
    assert all(later - earlier >= 600 for earlier, later in zip(sent, sent[6:], strict=False))


@given(
    attempt=st.integers(-3, 10_000),
    retry_after=st.floats(0, 86_400),
    jitter=st.floats(0, 1),
)
def test_a_wait_is_never_shorter_than_asked(
    attempt: int, retry_after: float, jitter: float
) -> None:
    assert next_delay(attempt, retry_after, jitter) >= retry_after


@given(retry_after=st.floats(), jitter=st.floats(0, 1))
def test_a_senseless_wish_changes_nothing(retry_after: float, jitter: float) -> None:
    delay = next_delay(1, retry_after, jitter)
    assert delay >= next_delay(1, 0.0, jitter)
    assert delay < float("inf")


def test_delays_grow_up_to_a_limit() -> None:
    delays = [next_delay(number, 0.0, 0.5) for number in range(1, 12)]
    assert all(earlier <= later for earlier, later in pairwise(delays))
    assert delays[0] == 15
    assert delays[-1] == LONGEST_DELAY


def test_jitter_spreads_what_was_asked_for_too() -> None:
    assert next_delay(1, 30.0, 0.0) == 30.0
    assert next_delay(1, 30.0, 1.0) > 30.0

from __future__ import annotations

import time

import pytest

from memoryd.adapters.clock import SystemClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SystemClock:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    return SystemClock()


@pytest.fixture(autouse=True)
def _zone_back(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    monkeypatch.undo()
    time.tzset()


def test_it_tells_the_local_time_of_day(clock: SystemClock) -> None:
    assert clock.hhmm(1_767_254_040) == "08:54"
    assert clock.day(1_767_254_040) == "01-01"


@pytest.mark.parametrize(
    ("at", "midnight"),
    [
        (1_767_254_040, 1_767_222_000),  # a winter's morning
        (1_774_749_600, 1_774_738_800),  # 04:00 of the day that has no 02:00
        (1_792_920_600, 1_792_879_200),  # an hour of the day that has 25
    ],
)
def test_a_day_starts_at_local_midnight(clock: SystemClock, at: float, midnight: float) -> None:
    assert clock.day_start(at) == midnight
    assert clock.hhmm(midnight) == "00:00"


def test_its_seconds_go_on(clock: SystemClock) -> None:
    assert clock.monotonic() <= clock.monotonic()
    assert abs(clock.now() - time.time()) < 60

"""The system's clock, behind the port `Clock`."""

from __future__ import annotations

import time


class SystemClock:
    """Wall clock, monotonic clock and the local calendar of this machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def hhmm(self, at: float) -> str:
        return time.strftime("%H:%M", time.localtime(at))

    def day(self, at: float) -> str:
        return time.strftime("%m-%d", time.localtime(at))

    def day_start(self, at: float) -> float:
        day = time.localtime(at)
        # -1: whether summer time holds at midnight is for the library to find out.
        return time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 0, 0, 0, 0, 0, -1))

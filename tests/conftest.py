"""Hypothesis profiles: `--hypothesis-profile NAME` or MEMORYD_TEST_PROFILE choose how much is tried.

`quick` and `ci` try the same examples each time; `torture` looks for new ones.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

for name, examples in (("quick", 50), ("ci", 5_000), ("torture", 100_000)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize=name != "torture",
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("MEMORYD_TEST_PROFILE", "quick"))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """What the daemon runs on."""
    return "asyncio"

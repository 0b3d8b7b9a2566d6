"""For tests of memoryctl: a place of its own, and a memoryctl that is typed there."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import answers
import pytest
from shells import CWD, Typed
from wire import short_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def utc() -> Iterator[None]:
    """Times of day are those of UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder with a short path."""
    with short_dir() as path:
        yield path


@pytest.fixture
def env(folder: Path) -> dict[str, str]:
    """A person whose home and socket lie in `folder`."""
    return {
        "HOME": str(folder / "home"),
        "PATH": os.environ["PATH"],
        "MEMORYD_SOCKET": str(folder / "s"),
    }


@pytest.fixture
def typed(env: dict[str, str]) -> Typed:
    """A memoryctl of that person."""
    return Typed(env, now=answers.NOW, directory=CWD)

"""Where requests go, and whether that can be reached."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from memoryd.adapters.forks import network
from memoryd.adapters.forks.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def listening() -> Iterator[str]:
    """An address of this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def deaf() -> Iterator[str]:
    """One that takes none: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_a_place_that_takes_connections_is_reachable(listening: str, deaf: str) -> None:
    assert await Network(f"http://{listening}", "", "").reachable()
    assert not await Network(f"http://{deaf}", "", "").reachable()


async def test_a_proxy_comes_first_where_it_is_used(listening: str, deaf: str) -> None:
    there, gone = f"http://{listening}", f"http://{deaf}"
    assert await Network("https://api.test", there, "").reachable()
    assert await Network("", there, "").reachable()
    assert not await Network("", gone, "").reachable()
    assert await Network(there, gone, "").reachable()


@pytest.mark.parametrize(
    "base", ["http://", "http://h:99999", "ftp://h", "http://[", "http://a..b"]
)
async def test_an_odd_address_is_not(base: str) -> None:
    assert not await Network(base, "", "").reachable()


async def test_a_place_that_lets_wait_is_not(
    listening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "REACH_LIMIT", 0)
    assert not await Network(f"http://{listening}", "", "").reachable()

"""Where requests go: base URL, proxy and certificates, of the daemon's own config or environment.

Owns the rule that a session has no say in it. Both backends ask here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from memoryd import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memoryd.config import Settings

DEFAULT_BASE_URL = "https://api.anthropic.com"

REACH_LIMIT = 5.0
"""Seconds that a connection may take."""

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Network:
    """Empty fields are not set: `base_url` then means the API's own."""

    base_url: str
    proxy: str
    ca_bundle: str

    async def reachable(self) -> bool:
        """Whether the place that requests go to first takes a connection now. Nothing is sent."""
        try:
            parts = urlsplit(self._first_stop())
            port = parts.port or PORTS[parts.scheme]
            with anyio.move_on_after(REACH_LIMIT):
                stream = await anyio.connect_tcp(parts.hostname or "", port)
                await stream.aclose()
                return True
        except (OSError, ValueError, KeyError):
            pass  # no network, or an address that `fault` tells
        return False

    def _first_stop(self) -> str:
        base = self.base_url or DEFAULT_BASE_URL
        return self.proxy if self.proxy and urlsplit(base).scheme == "https" else base

    def fault(self) -> str:
        """What of it can't be worked with, in one clause. Looks at a file: call in a thread."""
        for name, value in (("base_url", self.base_url), ("https_proxy", self.proxy)):
            if value and not _is_address(value):
                return f"{name} is no http or https address"
        if self.base_url and urlsplit(self.base_url).username is not None:
            # It stands in a child's arguments, which every user of the machine can read.
            return "base_url holds a user name or password"
        if self.ca_bundle and not Path(self.ca_bundle).is_file():
            return f"ca_bundle {self.ca_bundle} is no file"
        return ""


def network(settings: Settings, env: Mapping[str, str]) -> Network:
    """What the config says, else the daemon's environment."""
    bundle = settings.ca_bundle
    return Network(
        base_url=settings.base_url or env.get("ANTHROPIC_BASE_URL", ""),
        proxy=settings.https_proxy or env.get("HTTPS_PROXY", ""),
        ca_bundle=str(paths.expand(bundle, env)) if bundle else env.get("SSL_CERT_FILE", ""),
    )


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)

"""Credentials that were refused: nothing is sent with them until something about them changes.

Owns what was refused, per owner of a credential; the caller says by a stamp what "changed" means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.failure import remedy, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.ports import ForkFailure


class Refused:
    """What a backend remembers of refused credentials; `backend` is its name."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._noted: dict[str, tuple[str, ForkFailure]] = {}
        self._last = ""

    def note(self, owner: str, stamp: str, failure: ForkFailure) -> None:
        """`owner`'s credentials were refused as they stood at `stamp`."""
        self._last = owner
        self._noted[owner] = (stamp, failure)

    def forget(self, owner: str) -> None:
        """They were taken after all."""
        self._last = owner
        self._noted.pop(owner, None)

    def forget_all(self) -> None:
        """The person asked to try again."""
        self._noted.clear()

    def last_fault(self, stamp: Callable[[str], str]) -> str:
        """As `fault`, of the owner whose credentials were used last."""
        return self.fault(self._last, lambda: stamp(self._last))

    def fault(self, owner: str, stamp: Callable[[], str]) -> str:
        """One clause where they were refused and have not changed since, else an empty string.

        `stamp` looks at files, so it is called only where there is something to compare.
        """
        noted = self._noted.get(owner)
        if noted is None or noted[0] != stamp():
            return ""
        failure = noted[1]
        words = sentence(failure.kind, failure.status, failure.type)
        return f"{words}: {remedy(failure.kind, self._backend)}"

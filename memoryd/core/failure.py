"""Failed forks: which class a failure is of, its words for the person, how long to wait.

Owns the failure policy as rules: status and type in, a class, a sentence or seconds out. Never looks at
the words of a message, which a conversation may hold too. Knows no clock and rolls no dice.
"""

from __future__ import annotations

import math
import re
from typing import Literal, assert_never

FailureKind = Literal[
    "transient",  # 429, 529, 5xx, time-out, no network: retried with back-off
    "credentials",  # 401, 402, 403: the backend stops until the config or the login changes
    "too_long",  # 400 invalid_request_error: shrunk once
    "rejected",  # any other 4xx: not retried at once
    "nothing",  # nothing to fork yet
    "empty",  # no text came
    "cut",  # ended before its reply
    "refused",  # refused by the model
]

FIRST_DELAY = 15.0
"""Seconds after the first failure; doubled with each further one."""

LONGEST_DELAY = 300.0
"""Seconds. With `JITTER` at its least, at most six requests leave within ten minutes."""

JITTER = 0.2
"""Part of a delay by which it is made shorter or longer."""

LONGEST_WISH = 7 * 86_400.0
"""Seconds: a subscription's longest limit is a week; a server that asks for more is not believed."""

_DOUBLINGS = 5
"""15, 30, 60, 120, 240, 300, 300, …"""

_CREDENTIAL_STATUSES = frozenset({401, 402, 403})

_CREDENTIAL_TYPES = frozenset(
    {
        # of the Messages API
        "authentication_error",
        "billing_error",
        "permission_error",
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "organization_on_hold",
        # of the host, where no request left
        "account_on_hold",
        "authentication_failed",
        "cloud_credential_error",
        "oauth_org_not_allowed",
        "verification_required",
    }
)

_TRANSIENT_STATUSES = frozenset({0, 408, 425, 429})

_WORDS = {
    400: "invalid request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not found",
    408: "timeout",
    413: "request too large",
    429: "rate limit",
    500: "server error",
    502: "bad gateway",
    503: "unavailable",
    504: "timeout",
    529: "overloaded",
}
"""What a status means where the answer names no type: a gateway's may have no such body."""

_PLAIN_TYPE = re.compile(r"[a-z][a-z_]{0,59}\Z")


def classify(status: int, type: str) -> FailureKind:  # noqa: A002  the API's own word
    """The class of an answer that is no reply.

    `status` is the HTTP status, 0 where no response came; `type` the error's type or, where it says
    more, its code; empty where there was none.
    """
    if status in _CREDENTIAL_STATUSES or type in _CREDENTIAL_TYPES:
        return "credentials"
    if status == 413 or (status == 400 and type == "invalid_request_error"):  # noqa: PLR2004
        return "too_long"
    if status in _TRANSIENT_STATUSES or status >= 500:  # noqa: PLR2004
        return "transient"
    return "rejected"


def sentence(kind: FailureKind, status: int, type: str) -> str:  # noqa: A002
    """What happened, as it stands behind `error: ` on the status line."""
    match kind:
        case "nothing":
            return "there is nothing to fork yet"
        case "empty":
            return "the fork's reply was empty"
        case "cut":
            return "the fork was cut before its reply"
        case "refused":
            return "the fork was refused by the model"
        case "rejected" if not status:
            return f"the fork could not start{_in_brackets(_type_words(type))}"
        case "transient" | "credentials" | "too_long" | "rejected":
            return f"the fork got an API error, {_status_words(kind, status, type)}"
        case _:
            assert_never(kind)


def remedy(kind: FailureKind, backend: str) -> str:
    """The one thing that the person can do, or an empty string."""
    if kind != "credentials":
        return ""
    if backend == "claude":
        return "start `claude` and log in with /login"
    return "set a key that works: `memoryctl config path` names the file"


def next_delay(attempt: int, retry_after: float, jitter: float) -> float:
    """Seconds to wait after failure number `attempt` (from 1) before the next request.

    `retry_after` is what the server asked for, 0 where it did not: it is never undercut. `jitter` is
    a random number from 0 to 1.
    """
    delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(max(attempt, 1) - 1, _DOUBLINGS))
    delay *= 1 - JITTER + 2 * JITTER * jitter
    asked = min(retry_after, LONGEST_WISH) if math.isfinite(retry_after) else 0.0
    return max(delay, asked * (1 + JITTER * jitter))


def _status_words(kind: FailureKind, status: int, type: str) -> str:  # noqa: A002
    words = _type_words(type) or _WORDS.get(status, "")
    if status:
        return f"{status}{_in_brackets(words)}"
    return words if words and kind == "credentials" else "no response"


def _type_words(type: str) -> str:  # noqa: A002
    known = type if _PLAIN_TYPE.match(type) else ""
    return known.removesuffix("_error").replace("_", " ")


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""

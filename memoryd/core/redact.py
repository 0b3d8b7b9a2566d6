"""Secrets: the table of kinds, finding and masking.

Patterns are anchored at known prefixes, so that a git SHA, a UUID or `sk-learn` stays as it is. A filter,
not a proof: a secret without a known form is found only as an exact value that the caller names.
Prefixes and lengths are those that each issuer documents for its tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WORD = r"[A-Za-z0-9_-]"

_TABLE: tuple[tuple[str, str], ...] = (
    (
        "private-key",
        # a body stops at the next double hyphen: one pass, also over many heads without an end
        r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[A-Za-z0-9+/=\s\\:,.()]|-(?!-))*(?:-----END [A-Z0-9 ]{0,30}-----)?",
    ),
    ("anthropic-key", rf"sk-ant-[a-z0-9]+-{_WORD}{{20,}}"),
    ("openai-key", rf"sk-(?:proj|svcacct|admin|or-v1)-{_WORD}{{20,}}|sk-[A-Za-z0-9]{{40,}}"),
    ("github-token", r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"),
    ("gitlab-token", rf"gl(?:pat|dt|rt|ptt|cbt|ft|soat)-{_WORD}{{20,}}"),
    ("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    (
        "aws-secret-key",
        r"(?i:aws_?(?:secret_?access_?key|secret|session_?token))[\"']?\s*[:=]\s*[\"']?"
        r"(?P<secret>[A-Za-z0-9/+=]{40,})",
    ),
    ("google-key", rf"AIza{_WORD}{{35}}|GOCSPX-{_WORD}{{20,}}|ya29\.{_WORD}{{20,}}"),
    ("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}"),
    ("slack-webhook", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}"),
    ("stripe-key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,}"),
    ("npm-token", r"npm_[A-Za-z0-9]{36}"),
    ("pypi-token", rf"pypi-{_WORD}{{40,}}"),
    ("jwt", rf"eyJ{_WORD}{{8,}}\.eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}"),
    ("huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
    ("sendgrid-key", rf"SG\.{_WORD}{{16,}}\.{_WORD}{{32,}}"),
    ("twilio-key", r"SK[0-9a-f]{32}"),
    ("telegram-token", rf"\d{{8,10}}:AA{_WORD}{{33}}"),
    ("discord-token", rf"[MNO][A-Za-z0-9]{{23,25}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),
    ("databricks-token", r"dapi[0-9a-f]{32}"),
    ("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64}"),
    ("vault-token", rf"hv[sbr]\.{_WORD}{{24,}}"),
    ("docker-token", rf"dckr_(?:pat|oat)_{_WORD}{{20,}}"),
    ("age-key", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    ("azure-key", r"(?i:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{40,}={0,2})"),
    ("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("linear-key", r"lin_api_[A-Za-z0-9]{32,}"),
    ("notion-token", r"ntn_[A-Za-z0-9]{40,}"),
    ("postman-key", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("grafana-token", r"gl(?:sa|c)_[A-Za-z0-9_=+/]{32,}"),
    ("supabase-key", r"sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20,}"),
    ("groq-key", r"gsk_[A-Za-z0-9]{40,}"),
    ("xai-key", r"xai-[A-Za-z0-9]{40,}"),
    ("sentry-token", r"sntry[su]_[A-Za-z0-9_=+/-]{40,}"),
    ("mailgun-key", r"key-[0-9a-f]{32}"),
    (
        "url-password",
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@'\"<>]*:"
        r"(?![$%{*]|\[redacted:)(?P<secret>[^\s/@'\"<>]+)@(?=[^\s/])",
    ),
    (
        "authorization",
        r"(?i:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token))\s+"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    ),
    (
        "assigned-secret",
        r"(?i:[A-Za-z0-9_.-]{0,40}(?:api_?key|secret|token|passwo?r?d|credential)[A-Za-z0-9_]{0,40})"
        r"[\"']?\s*[:=]\s*[\"']?"
        r"(?P<secret>(?=[A-Za-z0-9+/_=-]*[a-z])(?=[A-Za-z0-9+/_=-]*[A-Z])(?=[A-Za-z0-9+/_=-]*\d)"
        r"[A-Za-z0-9+/_=-]{24,})",
    ),
)

_PATTERNS = tuple(
    (kind, re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})")) for kind, pattern in _TABLE
)

KINDS = tuple(kind for kind, _ in _TABLE)
"""The kinds of secret that are known, as they stand in `[redacted:kind]`."""

EXACT_KIND = "key"
EXACT_MINIMUM = 8
"""Characters from which an exact value is masked; a shorter one would mask common words."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands: `text[start:end]`."""

    kind: str
    start: int
    end: int


def find(text: str, exact: Iterable[str] = ()) -> list[Secret]:
    """All secrets of `text`, in order, not overlapping; `exact` are values known to be secret."""
    found = sorted(_all(text, exact), key=lambda secret: (secret.start, -secret.end))
    kept: list[Secret] = []
    for secret in found:
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
    return kept


def mask(text: str, exact: Iterable[str] = ()) -> str:
    """`text` with each secret as `[redacted:kind]`."""
    parts: list[str] = []
    at = 0
    for secret in find(text, exact):
        parts += (text[at : secret.start], f"[redacted:{secret.kind}]")
        at = secret.end
    return "".join((*parts, text[at:])) if parts else text


def _all(text: str, exact: Iterable[str]) -> Iterator[Secret]:
    for value in exact:
        at = text.find(value) if len(value) >= EXACT_MINIMUM else -1
        while at >= 0:
            yield Secret(EXACT_KIND, at, at + len(value))
            at = text.find(value, at + len(value))
    for kind, pattern in _PATTERNS:
        for found in pattern.finditer(text):
            group = "secret" if "secret" in pattern.groupindex else 0
            yield Secret(kind, found.start(group), found.end(group))

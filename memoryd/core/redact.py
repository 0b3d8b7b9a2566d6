"""Secrets: the table of kinds, finding and masking.

Patterns are anchored at known prefixes, so that a git SHA, a UUID or `sk-learn` stays as it is. A filter,
not a proof: a secret without a known form is found only as an exact value that the caller names.
Prefixes and lengths are those that each issuer documents for its tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WORD = r"[A-Za-z0-9_-]"
_SIGN = r"[\"'`]?\s{0,9}(?:[:=]|=>|:=)\s{0,9}[\"'`]?"
"""What stands between a name and its value in code, JSON, YAML and a shell."""

_SHORTEST_TOKEN = 15
"""Characters: hints of tokens are looked for in words from this length on, which few texts have."""

# Every repeat that can fail late is bounded: over a hostile text the scan would else be quadratic.
_TOKENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # kind, what a text must hold for the pattern to be tried, pattern
    ("anthropic-key", ("sk-ant-",), rf"sk-ant-{_WORD}{{20,}}"),
    (
        "openai-key",
        ("sk-",),
        rf"sk-(?:proj|svcacct|admin|or-v1|None)-{_WORD}{{20,}}"
        r"|sk-(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}",
    ),
    (
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
    ),
    (
        "gitlab-token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-"),
        rf"gl(?:pat|dt|rt|ptt|cbt|ft|soat)-{_WORD}{{20,}}(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{9}})?",
    ),
    (
        "aws-access-key",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    (
        "google-key",
        ("AIza", "GOCSPX-", "ya29."),
        rf"AIza{_WORD}{{35}}|GOCSPX-{_WORD}{{20,}}|ya29\.{_WORD}{{20,}}",
    ),
    (
        "slack-token",
        ("xox", "xapp-"),
        r"xox[abeoprs]-(?=[A-Za-z-]{0,40}\d)[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}",
    ),
    (
        "slack-webhook",
        ("hooks.slack.com",),
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}",
    ),
    (
        "stripe-key",
        ("_live_", "_test_", "whsec_"),
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,}",
    ),
    ("npm-token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    (
        "pypi-token",
        ("pypi-",),
        rf"pypi-(?=AgE|[A-Za-z_-]{{0,99}}\d)(?=AgE|[0-9a-z_-]{{0,99}}[A-Z]){_WORD}{{40,}}",
    ),
    ("jwt", (".eyJ",), rf"eyJ{_WORD}{{8,4096}}\.eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}"),
    ("huggingface-token", ("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    ("sendgrid-key", ("SG.",), rf"SG\.{_WORD}{{16,}}\.{_WORD}{{32,}}"),
    ("twilio-key", ("SK",), r"SK[0-9a-fA-F]{32}(?![A-Za-z0-9])"),
    ("telegram-token", (":A",), rf"(?:bot)?\d{{8,10}}:A{_WORD}{{34}}"),
    (
        "discord-webhook",
        ("api/webhooks/",),
        rf"https://(?:[a-z]+\.)?discord(?:app)?\.com/api/webhooks/\d+/{_WORD}{{40,}}",
    ),
    ("databricks-token", ("dapi",), r"dapi[0-9a-f]{32}"),
    ("digitalocean-token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64}"),
    ("vault-token", ("hvs.", "hvb.", "hvr."), rf"hv[sbr]\.{_WORD}{{24,}}"),
    ("docker-token", ("dckr_",), rf"dckr_(?:pat|oat)_{_WORD}{{20,}}"),
    ("age-key", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    ("azure-secret", ("Q~",), r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    ("shopify-token", ("shp",), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("linear-key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{32,}"),
    ("notion-token", ("ntn_",), r"ntn_[A-Za-z0-9]{40,}"),
    ("postman-key", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("grafana-token", ("glsa_", "glc_"), r"gl(?:sa|c)_[A-Za-z0-9_=+/]{32,}"),
    ("supabase-key", ("sbp_", "sb_secret_"), rf"sbp_[0-9a-f]{{40}}|sb_secret_{_WORD}{{20,}}"),
    ("groq-key", ("gsk_",), r"gsk_[A-Za-z0-9]{40,}"),
    ("xai-key", ("xai-",), r"xai-[A-Za-z0-9]{40,}"),
    ("sentry-token", ("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9_=+/-]{40,}"),
    ("mailgun-key", ("key-",), r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("mailchimp-key", ("-us",), r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])"),
    ("brevo-key", ("xkeysib-",), r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("atlassian-token", ("ATATT3", "ATCTT3"), r"AT[AC]TT3[A-Za-z0-9_=-]{60,}"),
    ("heroku-key", ("HRKU-",), rf"HRKU-{_WORD}{{30,}}"),
    ("netlify-token", ("nfp_",), r"nfp_[A-Za-z0-9]{36,}"),
    ("tailscale-key", ("tskey-",), r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}(?:-[A-Za-z0-9]{16,})?"),
    ("replicate-token", ("r8_",), r"r8_[A-Za-z0-9]{37}"),
    ("figma-token", ("figd_",), rf"figd_{_WORD}{{30,}}"),
    ("newrelic-key", ("NRAK-",), r"NRAK-[A-Z0-9]{27}"),
    ("rubygems-key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    (
        "doppler-token",
        ("dp.",),
        r"dp\.(?:pt|st|ct|sa|scim)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}",
    ),
    ("planetscale-token", ("pscale_",), rf"pscale_(?:tkn|pw|oauth)_{_WORD}{{30,}}"),
    ("terraform-token", (".atlasv1.",), rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}}"),
    ("pulumi-token", ("pul-",), r"pul-[0-9a-f]{40}"),
    ("perplexity-key", ("pplx-",), r"pplx-[A-Za-z0-9]{40,}"),
    ("langsmith-key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("onepassword-token", ("ops_eyJ",), rf"ops_eyJ{_WORD}{{100,}}"),
)

_VALUES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # as above, for what is no word, has a start of its own, or is known by the name before it;
    # hints in lower case
    (
        "private-key",
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]*+(?:-(?!-)[^-]*+)*+-----END [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+)",
    ),
    (
        "url-password",
        ("://",),
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@'\"<>]*:"
        r"(?![${*]|%(?![0-9A-Fa-f]{2})|\d{1,5}[?#]|\[redacted:)"
        # to the last @: one in a password is seldom written as %40
        r"(?P<secret>[^\s/'\"<>]+)@(?=[^\s/@])(?!sha\d{3}:)",
    ),
    (
        "aws-secret-key",
        ("secret", "session"),
        r"(?i:(?:aws[_-]?)?(?:secret[_-]?access[_-]?key|session[_-]?token)|aws[_-]?secret(?:[_-]?key)?)"
        rf"(?:{_SIGN}|\s)(?P<secret>[A-Za-z0-9/+=]{{40,}})",
    ),
    (
        "azure-key",
        ("accountkey", "sharedaccesskey"),
        r"(?i:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    (
        "discord-token",
        (".",),
        # the first letter before the look behind it: a text of prose has a dot, but few of these
        rf"[MNO](?:(?<![A-Za-z0-9].)|(?<=\\[nrt].))[A-Za-z0-9]{{23,25}}\.{_WORD}{{6}}\.{_WORD}{{27,}}",
    ),
    (
        "authorization",
        ("authorization",),
        r"(?i:authorization[\"'`\]]{0,2}\s{0,9}[:=,]\s{0,9}[\"'`]?(?:bearer|basic|token|apikey|bot))\s{1,9}"
        r"(?P<secret>(?=[A-Za-z._~+/=-]{0,99}\d|[a-z0-9._~+/=-]{0,99}[a-z][A-Z])[A-Za-z0-9._~+/=-]{12,}(?<!\.))",
    ),
    (
        "bearer",
        ("bearer",),
        r"(?i:bearer)\s{1,9}(?P<secret>(?=[A-Za-z._~+/=-]{0,99}\d)[A-Za-z0-9._~+/=-]{20,}(?<!\.))",
    ),
    (
        "assigned-secret",
        ("key", "secret", "token", "pass", "credential"),
        r"(?i:(?:api[_-]?key|secret|token|passwo?r?d|credential)[A-Za-z0-9_]{0,40})"
        rf"{_SIGN}(?P<secret>(?=[A-Z0-9+/_=-]{{0,99}}[a-z])(?=[a-z0-9+/_=-]{{0,99}}[A-Z])"
        r"(?=[A-Za-z+/_=-]{0,99}\d)[A-Za-z0-9+/_=-]{24,})",
    ),
)

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
"""A token begins where no letter or digit precedes, or behind an escape of JSON or of a URL."""

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
    """All secrets of `text`, in order, overlapping ones as one; `exact` are values known to be secret."""
    kept: list[Secret] = []
    for secret in sorted(_all(text, exact), key=lambda found: (found.start, -found.end)):
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:
            kept[-1] = replace(kept[-1], end=secret.end)
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
    words = " ".join(word for word in text.split() if len(word) >= _SHORTEST_TOKEN)
    lowered = text.lower()
    tried = [
        *((kind, f"{_START}(?:{form})") for kind, hints, form in _TOKENS if _any_in(words, hints)),
        *((kind, form) for kind, hints, form in _VALUES if _any_in(lowered, hints)),
    ]
    for kind, form in tried:
        regex = _compiled(form)
        group = "secret" if "secret" in regex.groupindex else 0
        for found in regex.finditer(text):
            yield Secret(kind, found.start(group), found.end(group))


def _any_in(text: str, hints: Iterable[str]) -> bool:
    return any(hint in text for hint in hints)


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """On first use: compiling all of them at import takes 15 ms of every start."""
    return re.compile(form)

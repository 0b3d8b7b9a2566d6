from __future__ import annotations

import base64
import json
import random
import string
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letters import ALNUM, BASE64, HEX, WORD, some

from memoryd.core.redact import _TOKENS, _VALUES, Secret, find, mask

if TYPE_CHECKING:
    from collections.abc import Callable


def encoded(chance: random.Random, value: object) -> str:
    data = json.dumps(value).encode() + bytes(chance.randrange(97, 122) for _ in range(9))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def private_key(chance: random.Random) -> str:
    name = chance.choice(["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", ""])
    body = "\n".join(some(chance, BASE64, 64) for _ in range(6))
    return f"-----BEGIN {name}PRIVATE KEY-----\n{body}\n-----END {name}PRIVATE KEY-----"


TOKENS: dict[str, Callable[[random.Random], str]] = {
    "private-key": private_key,
    "anthropic-key": lambda c: c.choice(
        [f"sk-ant-api03-{some(c, WORD, 93)}AA", f"sk-ant-{some(c, WORD, 40)}"]
    ),
    "openai-key": lambda c: c.choice(
        [
            f"sk-{some(c, ALNUM, 48)}",
            f"sk-proj-{some(c, WORD, 60)}",
            f"sk-svcacct-{some(c, WORD, 40)}",
        ]
    ),
    "github-token": lambda c: c.choice(
        [
            f"gh{c.choice('pousr')}_{some(c, ALNUM, 36)}",
            f"github_pat_{some(c, ALNUM, 22)}_{some(c, ALNUM, 59)}",
        ]
    ),
    "gitlab-token": lambda c: f"glpat-{some(c, WORD, 20)}",
    "aws-access-key": lambda c: (
        f"{c.choice(['AKIA', 'ASIA'])}{some(c, string.ascii_uppercase + '234567', 16)}"
    ),
    "aws-secret-key": lambda c: some(c, BASE64, 40),
    "google-key": lambda c: c.choice([f"AIza{some(c, WORD, 35)}", f"GOCSPX-{some(c, WORD, 28)}"]),
    "slack-token": lambda c: (
        f"xox{c.choice('bp')}-{some(c, string.digits, 12)}-{some(c, ALNUM, 24)}"
    ),
    "slack-webhook": lambda c: (
        f"https://hooks.slack.com/services/T{some(c, HEX, 8)}/B0{some(c, HEX, 6)}/{some(c, WORD, 24)}"
    ),
    "stripe-key": lambda c: (
        f"{c.choice(['sk', 'rk'])}_{c.choice(['live', 'test'])}_{some(c, ALNUM, 24)}"
    ),
    "npm-token": lambda c: f"npm_{some(c, ALNUM, 36)}",
    "pypi-token": lambda c: f"pypi-AgEIcHlwaS5vcmc{some(c, WORD, 80)}",
    "jwt": lambda c: ".".join(
        (encoded(c, {"alg": "HS256"}), encoded(c, {"sub": c.random()}), some(c, WORD, 43))
    ),
    "huggingface-token": lambda c: f"hf_{some(c, string.ascii_letters, 34)}",
    "sendgrid-key": lambda c: f"SG.{some(c, WORD, 22)}.{some(c, WORD, 43)}",
    "twilio-key": lambda c: f"SK{some(c, HEX, 32)}",
    "telegram-token": lambda c: f"{c.randrange(10**8, 10**10)}:AA{some(c, WORD, 33)}",
    "discord-token": lambda c: f"M{some(c, ALNUM, 23)}.{some(c, WORD, 6)}.{some(c, WORD, 27)}",
    "discord-webhook": lambda c: (
        f"https://discord.com/api/webhooks/{c.randrange(10**17, 10**18)}/{some(c, WORD, 68)}"
    ),
    "databricks-token": lambda c: f"dapi{some(c, HEX, 32)}",
    "digitalocean-token": lambda c: f"dop_v1_{some(c, HEX, 64)}",
    "vault-token": lambda c: f"hvs.{some(c, WORD, 90)}",
    "docker-token": lambda c: f"dckr_pat_{some(c, WORD, 27)}",
    "age-key": lambda c: f"AGE-SECRET-KEY-1{some(c, string.ascii_uppercase + string.digits, 58)}",
    "azure-secret": lambda c: f"{some(c, ALNUM, 3)}8Q~{some(c, ALNUM, 34)}",
    "azure-key": lambda c: f"{some(c, BASE64, 86)}==",
    "shopify-token": lambda c: f"shpat_{some(c, HEX, 32)}",
    "linear-key": lambda c: f"lin_api_{some(c, ALNUM, 40)}",
    "notion-token": lambda c: f"ntn_{some(c, ALNUM, 46)}",
    "postman-key": lambda c: f"PMAK-{some(c, HEX, 24)}-{some(c, HEX, 34)}",
    "grafana-token": lambda c: f"glsa_{some(c, ALNUM, 32)}_{some(c, HEX, 8)}",
    "supabase-key": lambda c: f"sbp_{some(c, HEX, 40)}",
    "groq-key": lambda c: f"gsk_{some(c, ALNUM, 52)}",
    "xai-key": lambda c: f"xai-{some(c, ALNUM, 80)}",
    "sentry-token": lambda c: f"sntrys_{some(c, ALNUM, 60)}",
    "mailgun-key": lambda c: f"key-{some(c, HEX, 32)}",
    "mailchimp-key": lambda c: f"{some(c, HEX, 32)}-us{c.randrange(1, 21)}",
    "brevo-key": lambda c: f"xkeysib-{some(c, HEX, 64)}-{some(c, ALNUM, 16)}",
    "atlassian-token": lambda c: f"ATATT3{some(c, WORD, 180)}",
    "heroku-key": lambda c: f"HRKU-{some(c, WORD, 60)}",
    "netlify-token": lambda c: f"nfp_{some(c, ALNUM, 36)}",
    "tailscale-key": lambda c: f"tskey-auth-{some(c, ALNUM, 12)}-{some(c, ALNUM, 32)}",
    "replicate-token": lambda c: f"r8_{some(c, ALNUM, 37)}",
    "figma-token": lambda c: f"figd_{some(c, WORD, 40)}",
    "newrelic-key": lambda c: f"NRAK-{some(c, string.ascii_uppercase + string.digits, 27)}",
    "rubygems-key": lambda c: f"rubygems_{some(c, HEX, 48)}",
    "doppler-token": lambda c: f"dp.pt.{some(c, ALNUM, 43)}",
    "planetscale-token": lambda c: f"pscale_tkn_{some(c, WORD, 43)}",
    "terraform-token": lambda c: f"{some(c, ALNUM, 14)}.atlasv1.{some(c, WORD, 67)}",
    "pulumi-token": lambda c: f"pul-{some(c, HEX, 40)}",
    "perplexity-key": lambda c: f"pplx-{some(c, ALNUM, 48)}",
    "langsmith-key": lambda c: f"lsv2_pt_{some(c, HEX, 32)}_{some(c, HEX, 10)}",
    "onepassword-token": lambda c: f"ops_eyJ{some(c, WORD, 300)}",
    "url-password": lambda c: some(c, ALNUM + "!$&()*+,;=~._-", 14).strip("$*"),
    "authorization": lambda c: some(c, ALNUM, 32),
    "bearer": lambda c: some(c, WORD, 32),
    "assigned-secret": lambda c: some(c, ALNUM, 32),
}

NAMED = {
    "aws-secret-key": "aws_secret_access_key",
    "assigned-secret": "my_api_key",
}
"""Kinds without a form of their own: known by the name before them."""

AROUND = {
    "url-password": ("postgres://app:", "@db.internal:5432/main"),
    "azure-key": ("AccountName=x;AccountKey=", ";Endpoint"),
    "authorization": ("Authorization: Bearer ", ""),
    "bearer": ("curl with bearer ", ""),
}

CONTEXTS: dict[str, str] = {
    "bare": "{}",
    "quoted": "'{}'",
    "double quoted": 'value: "{}";',
    "json": '{{"id": 7, "value": "{}", "next": null}}',
    "env": "export VALUE={}",
    "yaml": "services:\n  value: {}\n  other: 1",
    "url": "https://example.com/path?x=1&value={}&y=2",
    "bullet": "- The value is {}.",
    "code": "- Set `{}` in the console",
    "fence": "```sh\nlogin {}\n```",
    "words": "Please note that our value is {} and keep it",
    "end": "the value is {}",
    "brackets": "([{}])",
    "escaped": 'printed "first\\n{}\\nlast"',
    "table": "| value | {} |",
}

NAMED_CONTEXTS: dict[str, str] = {
    "env": "export {name}={value}",
    "quoted": "{name}='{value}'",
    "json": '{{"{name}": "{value}"}}',
    "yaml": "{name}: {value}",
    "toml": '{name} = "{value}"',
    "bullet": "- {name}={value} is set",
    "code": "- `{name}`: `{value}`",
    "call": '{name} => "{value}"',
    "upper": "{upper}={value}",
    "end": "we use {name}: {value}",
}


def samples(kind: str, count: int = 6) -> list[tuple[str, str, str]]:
    """Texts that hold a secret of that kind: context, text, the secret."""
    chance = random.Random(f"seed {kind}")
    found = []
    for _ in range(count):
        token = TOKENS[kind](chance)
        if kind in NAMED:
            name = NAMED[kind]
            for context, form in NAMED_CONTEXTS.items():
                text = form.format(name=name, upper=name.upper(), value=token)
                found.append((context, text, token))
        else:
            before, after = AROUND.get(kind, ("", ""))
            for context, form in CONTEXTS.items():
                if kind in AROUND and context == "url":
                    continue
                inner = token.replace("\n", "\\n") if context in {"json", "escaped"} else token
                found.append((context, form.format(f"{before}{inner}{after}"), inner))
    return found


def test_each_kind_has_a_sample() -> None:
    assert {kind for kind, _, _ in (*_TOKENS, *_VALUES)} == set(TOKENS)


@pytest.mark.parametrize("kind", TOKENS)
def test_each_kind_is_found_in_each_context(kind: str) -> None:
    missed = [
        (context, text)
        for context, text, token in samples(kind)
        if token[:30] in mask(text) or "[redacted:" not in mask(text)
    ]
    assert missed == []


@pytest.mark.parametrize("kind", sorted(set(TOKENS) - {"bearer", "assigned-secret"}))
def test_each_kind_is_named(kind: str) -> None:
    for _, text, _ in samples(kind, 2):
        assert f"[redacted:{kind}]" in mask(text)


@pytest.mark.parametrize("kind", TOKENS)
def test_what_is_around_a_secret_stays(kind: str) -> None:
    for context, text, token in samples(kind, 2):
        if context not in {"url", "env", "upper", "yaml"}:
            before, _, after = text.partition(token)
            masked = mask(text)
            assert masked.startswith(before)
            assert masked.endswith(after)


@pytest.mark.parametrize("kind", TOKENS)
def test_masking_twice_is_masking_once(kind: str) -> None:
    for _, text, _ in samples(kind, 2):
        assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://telegram/bot123456789:AA" + "b" * 33, "https://telegram/[redacted:telegram-token]"),
        ("redis://:hunter2@cache:6379", "redis://:[redacted:url-password]@cache:6379"),
        ("https://u:p%40ss@host", "https://u:[redacted:url-password]@host"),
        ("mysql://u:p@ss@host/db@2", "mysql://u:[redacted:url-password]@host/db@2"),
        ("%22ghp_" + "a1B2" * 9, "%22[redacted:github-token]"),
        (
            '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"',
            '"SecretAccessKey": "[redacted:aws-secret-key]"',
        ),
        ("Authorization: Basic dXNlcjpzd29yZGZpc2g=", "Authorization: Basic [redacted:authorization]"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ", "[redacted:private-key]"),
        ("see -----BEGIN RSA PRIVATE KEY----- in the docs", "see [redacted:private-key] in the docs"),
        (
            '"-----BEGIN PRIVATE KEY-----\\n" + "MIIEvQIBADAN" + "-----END PRIVATE KEY-----"',
            '"[redacted:private-key]"',
        ),
    ],
)  # fmt: skip
def test_forms_that_need_care(text: str, masked: str) -> None:
    assert mask(text) == masked


# ── exact values, overlaps ─────────────────────────────────────────────────────────────────────────


def test_an_exact_value_is_masked_wherever_it_stands() -> None:
    assert mask("a-swordfish-b swordfish", ["swordfish"]) == "a-[redacted:key]-b [redacted:key]"


def test_a_short_exact_value_masks_no_words() -> None:
    assert mask("the fish", ["fish", ""]) == "the fish"


def test_overlapping_secrets_are_masked_as_one() -> None:
    token = "ghp_" + "a1B2" * 9
    assert mask(f"{token}tail", ["a1B2tail"]) == "[redacted:github-token]"
    assert find(f"a fish {token}", ["fish ghp_"]) == [Secret("key", 2, 7 + len(token))]


def test_secrets_are_in_order() -> None:
    text = " and ".join(
        TOKENS[kind](random.Random(kind)) for kind in ("npm-token", "jwt", "gitlab-token")
    )
    assert [secret.kind for secret in find(text)] == ["npm-token", "jwt", "gitlab-token"]


@given(st.text(st.sampled_from("abcXYZ0189-_.:/@= \n"), max_size=300))
def test_what_is_masked_is_named_and_the_rest_stays(text: str) -> None:
    found = find(text)
    assert all(0 <= secret.start < secret.end <= len(text) for secret in found)
    assert all(first.end <= second.start for first, second in pairwise(found))
    assert (mask(text) == text) == (not found)


# ── time ───────────────────────────────────────────────────────────────────────────────────────────

PIECES = [
    "a", " ", "-", "_", ".", "a.", "a-", "eyJaaaaaaaa-", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJaaaaaaaa-",
    "sk-", "sk-ant-", "sk-ant-a", "sk-proj-", "sk-a-", "token=", "token=a", "token-", "secret_",
    "api_key:", "aws_secret", "aws_secret ", "secret_access_key ", "a://", "a://b:", "a://b:c",
    "://:", "http:", "a:b@", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 64, "- ", "--a", "SG.", "SG.a-",
    "MAAAAAAAAAAAAAAAAAAAAAAA.", "123456789:A", "pypi-", "pypi-a", "authorization: bearer ",
    "authorization:", "bearer ", "bearer a", "AccountKey=", "AccountKey=a/", "8Q~", "glpat-",
    "https://hooks.slack.com/services/", "https://discord.com/api/webhooks/1/", ".atlasv1.", "key-",
    "-us1", "%20", "\\n", "\\u0022", "ghp_", "gh", "xox", "xoxb-", "AKIA", "hvs.", "ops_eyJ",
    "dp.pt.", "0123456789abcdef", "ATATT3", "tskey-auth-",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_texts_of_256_kib_take_bounded_time(piece: str) -> None:
    text = piece * (256 * 1024 // len(piece))
    started = time.process_time()
    mask(text)
    assert time.process_time() - started < 1

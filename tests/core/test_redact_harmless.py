"""Lines that only look like secrets: at most one false hit in a thousand."""

from __future__ import annotations

import base64
import random
import string
import uuid

import pytest
from letters import ALNUM, BASE64, HEX, some

from memoryd.core.redact import find, mask

HARMLESS = [
    "use sk-learn, not sk-image",
    "sk-learn-contrib-lightning-and-more-words-in-the-name",
    "sk-internationalization",
    "ghp_ is the prefix of a token",
    "set GITHUB_TOKEN in the CI",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "api_key = os.environ['API_KEY']",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "authorization: bearer authentication is used here",
    "the bearer of this_is_a_long_name_without_digits",
    "password=hunter2 is the example of the docs",
    "https://user@example.com/path",
    "https://localhost:8080/@scope/package",
    "http://[::1]:8080/a@b",
    "https://user:${PASSWORD}@host",
    "https://user:{password}@host",
    "https://user:***@host",
    "https://user:%s@host",
    "https://example.com:443?mail=a@b.com",
    "docker://alpine:3.19@sha256:" + "ab" * 32,
    "ssh://git@github.com:22/x",
    "git@github.com:owner/name.git",
    "npm_config_registry_with_a_very_long_name_here",
    "hf_hub_download",
    "SG.subscribe.unsubscribe",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "AKIA is a prefix, ASIA a continent",
    "EURASIANCONTINENTALSHELF",
    "key-value store, key-0123",
    "eyJ is how a token starts",
    "pypi-publish-workflow-for-the-release-branch-of-our-package",
    "xoxo-hugs-and-kisses",
    "r8_g8_b8_a8_unorm",
    "token_count = tokenizer.encode_batch_with_special_tokens(text)",
    "SKIPPED",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_lines_stay(text: str) -> None:
    assert mask(text) == text


def harmless(chance: random.Random) -> str:
    sha, word = some(chance, HEX, 40), "".join(chance.choices(string.ascii_lowercase, k=8))
    version = ".".join(str(chance.randrange(30)) for _ in range(3))
    identifier = str(uuid.UUID(int=chance.getrandbits(128)))
    integrity = base64.b64encode(chance.randbytes(64)).decode()
    short = base64.b64encode(word.encode()).decode()
    return chance.choice(
        [
            f"- fixed in {sha}",
            f"commit {sha[:12]} reverts {some(chance, HEX, 64)}",
            f"secret id {identifier}",
            f"token: {identifier}",
            f"api_key_id={sha}",
            f'"integrity": "sha512-{integrity}"',
            f'resolved "https://registry.example.org/{word}/-/{word}-{version}.tgz#{sha}"',
            f"sha256:{some(chance, HEX, 64)}",
            f"FROM {word}:{version}@sha256:{some(chance, HEX, 64)}",
            f"https://{word}.example.com:{chance.randrange(1024, 65535)}/{word}?q={short}#{word}",
            f"postgres://localhost:5432/{word}",
            f"color: #{some(chance, HEX, 6)}; background: #{some(chance, HEX, 8)}",
            f"src/{word}/{word}_{version}/test_{word}.py:{chance.randrange(999)}",
            f"def {word}_token(secret_key: str, password: str = DEFAULT_{word.upper()}) -> None:",
            f'const {word}ApiKey = process.env.{word.upper()}_API_KEY ?? "";',
            f"{word}@{version}, {word}-{word}~{version}",
            f"echo {short} | base64 -d",
            f"data:image/png;base64,{base64.b64encode(chance.randbytes(60)).decode()}",
            f"sk-{word}-{word} and sk-learn {version}",
            f"2024-0{chance.randrange(1, 9)}-11T09:14:0{chance.randrange(9)}Z {word} took {version} s",
            f"0x{some(chance, HEX, 40)} and {some(chance, HEX, 32)}",
            f"class {word.title()}TokenProvider{word.title()}Factory(Base)",
            f"arn:aws:iam::{chance.randrange(10**11, 10**12)}:role/{word}",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{some(chance, BASE64, 43)} {word}@host",
            f'etag W/"{some(chance, ALNUM, 27)}"',
            f"/nix/store/{some(chance, string.ascii_lowercase + string.digits, 32)}-{word}-{version}",
            f"next.js chunk {word}-{some(chance, HEX, 16)}.js",
        ]
    )


def test_at_most_one_false_hit_in_1000_harmless_lines() -> None:
    chance = random.Random(3)
    lines = [harmless(chance) for _ in range(5_000)]
    hits = [(line, find(line)) for line in lines if find(line)]
    assert len(hits) <= 5, hits

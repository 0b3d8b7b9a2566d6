from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from blockbuster import blockbuster_ctx

from memoryd.adapters import secrets
from memoryd.adapters.secrets import ApiKey, NoKey, Secrets
from memoryd.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

FILE_KEY = "sk-ant-made-up-file"
ENV_KEY = "sk-ant-made-up-env"


class Stopped:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def hhmm(self, at: float) -> str:
        return str(at)

    def day(self, at: float) -> str:
        return str(at)

    def day_start(self, at: float) -> float:
        return at


class Place:
    """A home with a config that a test changes while the secrets look."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = Stopped()
        self.settings = Settings()
        self.env = {"HOME": str(home), "PATH": os.defpath}
        self.platform = "linux"

    def secrets(self) -> Secrets:
        return Secrets(self.env, lambda: self.settings, self.clock, platform=self.platform)

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        path = self.home / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)


@pytest.fixture(autouse=True)
def _loop_is_never_blocked() -> Iterator[None]:
    with blockbuster_ctx("memoryd.adapters"):
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def fault(found: Secrets) -> str:
    return await anyio.to_thread.run_sync(found.fault)


async def stamp(found: Secrets) -> str:
    return await anyio.to_thread.run_sync(found.stamp)


def counting(place: Place, output: str) -> str:
    """A command that prints `output` and counts its runs in the file `runs`."""
    place.write("command", f"#!/bin/sh\necho x >> '{place.home}/runs'\n{output}\n", 0o700)
    return f"'{place.home}/command'"


def runs(place: Place) -> int:
    path = place.home / "runs"
    return len(path.read_text().split()) if path.exists() else 0


async def test_without_a_source_it_says_what_to_set(place: Place) -> None:
    assert await place.secrets().find() == NoKey(
        "no API key is set (api_key_file or api_key_command)"
    )
    assert await fault(place.secrets()) == "no API key is set (api_key_file or api_key_command)"


async def test_the_sources_come_in_their_order(place: Place) -> None:
    found = place.secrets()
    place.env["ANTHROPIC_API_KEY"] = ENV_KEY
    assert await found.find() == ApiKey(ENV_KEY, "the daemon's environment")
    place.settings = Settings(api_key_command="echo sk-ant-made-up-command")
    assert await found.find() == ApiKey("sk-ant-made-up-command", "api_key_command")
    place.write("key", f"{FILE_KEY}\n")
    place.settings = Settings(api_key_file="~/key", api_key_command="echo sk-ant-made-up-command")
    assert await found.find() == ApiKey(FILE_KEY, "api_key_file")
    place.env["CREDENTIALS_DIRECTORY"] = str(place.home)
    place.write("anthropic-api-key", "sk-ant-made-up-systemd", 0o440)
    assert await found.find() == ApiKey("sk-ant-made-up-systemd", "the systemd credential")
    assert await fault(found) == ""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
async def test_a_key_file_that_others_can_read_is_refused(place: Place, mode: int) -> None:
    path = place.write("key", FILE_KEY, mode)
    place.settings = Settings(api_key_file=path)
    place.env["ANTHROPIC_API_KEY"] = ENV_KEY
    reason = f"api_key_file is open to others: chmod 600 '{path}'"
    assert await place.secrets().find() == NoKey(reason)
    assert await fault(place.secrets()) == reason


async def test_a_key_file_that_is_missing_or_no_file_is_named(place: Place) -> None:
    place.settings = Settings(api_key_file="~/key")
    reason = f"api_key_file {place.home}/key can't be read: No such file or directory"
    assert await place.secrets().find() == NoKey(reason)
    os.mkfifo(place.home / "key", 0o600)
    assert await place.secrets().find() == NoKey("api_key_file holds no key")


@pytest.mark.parametrize("text", ["", "\n", "short", "two words and more", "schlüssel-schlüssel"])
async def test_what_is_no_key_is_not_sent(place: Place, text: str) -> None:
    place.settings = Settings(api_key_file=place.write("key", text))
    assert await place.secrets().find() == NoKey("api_key_file holds no key")


async def test_a_key_that_is_put_in_place_counts_at_once(place: Place) -> None:
    found = place.secrets()
    place.settings = Settings(api_key_file="~/key")
    assert await fault(found) != ""
    before = await stamp(found)
    place.write("key", FILE_KEY)
    assert await fault(found) == ""
    assert await found.find() == ApiKey(FILE_KEY, "api_key_file")
    assert await stamp(found) != before


async def test_a_command_is_run_once_until_its_key_is_refused(place: Place) -> None:
    place.settings = Settings(api_key_command=counting(place, "echo sk-ant-made-up-command"))
    found = place.secrets()
    assert await fault(found) == ""
    assert runs(place) == 0
    assert await found.find() == await found.find()
    assert runs(place) == 1
    found.forget()
    await found.find()
    assert runs(place) == 2


async def test_a_changed_config_runs_the_new_command(place: Place) -> None:
    found = place.secrets()
    place.settings = Settings(api_key_command="echo sk-ant-made-up-one")
    before = await stamp(found)
    assert await found.find() == ApiKey("sk-ant-made-up-one", "api_key_command")
    place.settings = Settings(api_key_command="echo sk-ant-made-up-two")
    assert await found.find() == ApiKey("sk-ant-made-up-two", "api_key_command")
    assert await stamp(found) != before


async def test_a_failed_command_is_not_run_again_within_a_minute(place: Place) -> None:
    place.settings = Settings(api_key_command=counting(place, "exit 4"))
    found = place.secrets()
    assert await found.find() == NoKey("api_key_command ended with status 4")
    assert await found.find() == NoKey("api_key_command ended with status 4")
    assert await fault(found) == "api_key_command ended with status 4"
    assert runs(place) == 1
    place.clock.at += secrets.COMMAND_PAUSE + 1
    assert await fault(found) == ""
    await found.find()
    assert runs(place) == 2


async def test_a_command_has_a_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_LIMIT", 0.1)
    place.settings = Settings(api_key_command="sleep 600")
    assert await place.secrets().find() == NoKey("api_key_command took more than 0 s")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("nowhere-to-be-found", "api_key_command: the program is not there"),
        ("echo 'open", "api_key_command has an open quote"),
        ("echo", "api_key_command holds no key"),
        ("printf '%s\\n' sk-ant-one sk-ant-two", "api_key_command holds no key"),
    ],
)
async def test_a_command_that_gives_no_key_is_named(
    place: Place, command: str, reason: str
) -> None:
    place.settings = Settings(api_key_command=command)
    assert await place.secrets().find() == NoKey(reason)


async def test_a_command_sees_no_shell_unless_it_is_one(place: Place) -> None:
    place.settings = Settings(api_key_command="echo sk-ant-$HOME;true")
    assert await place.secrets().find() == ApiKey("sk-ant-$HOME;true", "api_key_command")
    place.settings = Settings(api_key_command="sh -c 'echo sk-ant-made-$((1+1))'")
    assert await place.secrets().find() == ApiKey("sk-ant-made-2", "api_key_command")


async def test_the_keychain_stands_before_the_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_KEYCHAIN", counting(place, "echo sk-ant-made-up-keychain"))
    place.platform = "darwin"
    place.settings = Settings(api_key_command="echo sk-ant-made-up-command")
    found = place.secrets()
    await found.prepare()
    assert await fault(found) == ""
    assert await found.find() == ApiKey("sk-ant-made-up-keychain", "the keychain")
    assert runs(place) == 1


async def test_an_empty_keychain_is_passed_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_KEYCHAIN", counting(place, "exit 44"))
    place.platform = "darwin"
    found = place.secrets()
    await found.prepare()
    assert await fault(found) == "no API key is set (api_key_file or api_key_command)"
    place.env["ANTHROPIC_API_KEY"] = ENV_KEY
    assert await found.find() == ApiKey(ENV_KEY, "the daemon's environment")


async def test_keys_that_were_handed_out_are_known_for_masking(place: Place) -> None:
    place.env["ANTHROPIC_API_KEY"] = ENV_KEY
    found = place.secrets()
    assert found.seen == frozenset()
    await found.find()
    assert found.seen == {ENV_KEY}


def test_a_key_does_not_show() -> None:
    key = ApiKey(FILE_KEY, "api_key_file")
    assert repr(key) == f"ApiKey(from api_key_file, {len(FILE_KEY)} characters)"
    assert FILE_KEY not in f"{key} {key!r} {key.digest}"

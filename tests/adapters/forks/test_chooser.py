from __future__ import annotations

from pathlib import Path

import pytest
from fake_forks import FakeBackend

from memoryd.adapters.forks.chooser import AutoChooser
from memoryd.config import ForkBackendName, ForkSettings, Settings
from memoryd.ports import Choice, SessionRef

SESSION = SessionRef("session", Path("/none.jsonl"), Path("/none"), Path("/"))

NO_KEY = "no API key is set (api_key_file or api_key_command)"
NO_PROGRAM = "the `claude` program is not on the daemon's PATH nor in its usual places"


class Stage:
    def __init__(self) -> None:
        self.digest = FakeBackend(name="digest")
        self.claude = FakeBackend(name="claude")
        self.settings = Settings()
        self.chooser = AutoChooser((self.digest, self.claude), lambda: self.settings)

    def pin(self, name: ForkBackendName) -> None:
        self.settings = Settings(fork=ForkSettings(backend=name))

    def choose(self) -> Choice:
        return self.chooser.choose(SESSION)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_with_a_key_it_is_the_digest(stage: Stage) -> None:
    assert stage.choose() == Choice(stage.digest, "an API key is at hand")


def test_without_a_key_it_is_the_persons_client(stage: Stage) -> None:
    stage.digest.fault_text = NO_KEY
    assert stage.choose() == Choice(
        stage.claude, f"the `claude` program is there; digest: {NO_KEY}"
    )


def test_with_neither_it_says_what_each_lacks_and_where_to_set_it(stage: Stage) -> None:
    stage.digest.fault_text = NO_KEY
    stage.claude.fault_text = NO_PROGRAM
    assert stage.choose() == Choice(
        None,
        f"no credentials: digest: {NO_KEY}; claude: {NO_PROGRAM};"
        " `memoryctl config path` names the file to set it in",
    )


def test_a_pinned_backend_is_taken_and_no_other(stage: Stage) -> None:
    stage.pin("claude")
    assert stage.choose() == Choice(stage.claude, "fork.backend pins it")
    stage.claude.fault_text = NO_PROGRAM
    assert stage.choose() == Choice(None, f"claude, which fork.backend pins: {NO_PROGRAM}")
    stage.pin("digest")
    assert stage.choose() == Choice(stage.digest, "fork.backend pins it")


def test_a_changed_config_counts_at_once(stage: Stage) -> None:
    stage.pin("claude")
    assert stage.choose().backend is stage.claude
    stage.settings = Settings()
    assert stage.choose().backend is stage.digest


def test_the_person_can_ask_all_to_try_again(stage: Stage) -> None:
    stage.digest._refused = stage.claude._refused = True
    assert stage.choose().backend is None
    stage.chooser.release()
    assert stage.choose().backend is stage.digest
    assert stage.chooser.backends() == (stage.digest, stage.claude)

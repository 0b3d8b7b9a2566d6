"""The config file: what it may hold, and that a fault names its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from memoryd import config
from memoryd.config import Config, Duration, ProjectSettings, Settings, duration
from memoryd.errors import ConfigError

FILE = Path("/home/u/.config/memoryd/config.toml")
ENV = {"HOME": "/home/u"}


def parsed(text: str, env: dict[str, str] | None = None) -> Config:
    return config.parse(text.encode(), FILE, env or ENV)


def fault(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as told:
        parsed(text)
    assert told.value.hint == f"${{EDITOR:-vi}} '{FILE}'"
    assert told.value.path == FILE
    return told.value


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("10 min", 600),
            ("90 s", 90),
            ("90s", 90),
            (" 1.5 h ", 5400),
            ("250 ms", 0.25),
            ("2 d", 172_800),
            ("0 s", 0),
        ],
    )
    def test_a_number_and_its_unit(self, text: str, seconds: float) -> None:
        assert duration(text) == seconds
        assert parsed(f'retry_for = "{text}"').settings.retry_for == seconds

    @pytest.mark.parametrize(
        "text",
        ["10", "min", "", "-1 s", "1e3 s", "1 week", "1 s 2", "٣ s", "1,5 h", "1 m", "inf s"],
    )
    def test_anything_else_is_told_the_form(self, text: str) -> None:
        with pytest.raises(ValueError, match="such as `10 min` or `90 s`"):
            duration(text)
        assert fault(f'\nretry_for = "{text}"').line == 2


class TestSettings:
    def test_the_defaults(self) -> None:
        found = parsed("").settings
        assert found == Settings()
        assert found.memory_language == "en"
        assert found.language_note
        assert found.headless == "full"
        assert found.idle_save_after == Duration(600)
        assert (found.max_parallel_saves, found.max_saves_per_hour) == (2, 30)
        assert found.on_concurrent_edit == "rebase"
        assert found.max_removal == 0.5
        assert found.critical_rules_need_quote
        assert found.join_clones
        assert found.worktrees == "shared"
        assert found.exclude == ()
        assert (found.retention_days, found.max_state_mb) == (90, 200)
        assert found.retry_for == Duration(1800)
        fork = found.fork
        assert (fork.backend, fork.model) == ("auto", "")
        assert (fork.deadline, fork.worker_idle) == (Duration(180), Duration(60))
        assert fork.digest_tokens == 90_000

    def test_a_file_with_everything(self) -> None:
        found = parsed(
            """
            memory_root = "~/notes"
            headless = "load"
            exclude = ["~/secret/*", "/srv/**"]
            idle_save_after = "1 h"

            [fork]
            backend = "digest"
            deadline = "20 s"

            [projects."~/work/api"]
            name = "the-api"
            worktrees = "separate"
            """
        )
        assert found.memory_root == Path("/home/u/notes")
        assert found.settings.fork.deadline == Duration(20)
        assert found.settings.projects["~/work/api"].name == "the-api"

    def test_only_comments(self) -> None:
        assert parsed("# nothing yet\n\n").settings == Settings()

    def test_a_byte_order_mark_and_windows_line_ends(self) -> None:
        found = config.parse(b"\xef\xbb\xbfretention_days = 3\r\n", FILE, ENV)
        assert found.settings.retention_days == 3


@dataclass(frozen=True)
class Wrong:
    """A line that is refused, and what is said of it."""

    line: str
    said: str
    table: str = ""


WRONG = [
    Wrong("memory_root = 3", "`memory_root`: expected `str`, got `int`"),
    Wrong("memory_language = true", "`memory_language`: expected `str`, got `bool`"),
    Wrong('language_note = "yes"', "`language_note`: expected `bool`, got `str`"),
    Wrong('headless = "sometimes"', "`headless`: invalid enum value 'sometimes'"),
    Wrong('gate = "always"', "`gate`: invalid enum value 'always'"),
    Wrong("idle_save_after = 600", "`idle_save_after`: expected a duration such as"),
    Wrong('idle_save_after = "soon"', "`idle_save_after`: expected a duration such as"),
    Wrong("max_parallel_saves = 0", "`max_parallel_saves`: expected `int` >= 1"),
    Wrong("max_parallel_saves = 1.5", "`max_parallel_saves`: expected `int`, got `float`"),
    Wrong("max_parallel_saves = true", "`max_parallel_saves`: expected `int`, got `bool`"),
    Wrong("max_saves_per_hour = -1", "`max_saves_per_hour`: expected `int` >= 1"),
    Wrong('on_concurrent_edit = "merge"', "`on_concurrent_edit`: invalid enum value 'merge'"),
    Wrong("max_removal = 1.1", "`max_removal`: expected `float` <= 1"),
    Wrong("max_removal = -0.1", "`max_removal`: expected `float` >= 0"),
    Wrong("max_removal = nan", "`max_removal`: expected `float` >= 0"),
    Wrong("critical_rules_need_quote = 1", "`critical_rules_need_quote`: expected `bool`"),
    Wrong("join_clones = 0", "`join_clones`: expected `bool`, got `int`"),
    Wrong('worktrees = "both"', "`worktrees`: invalid enum value 'both'"),
    Wrong('exclude = "~/x"', "`exclude`: expected `array`, got `str`"),
    Wrong('exclude = ["a", 3]', "`exclude`: expected `str`, got `int`"),
    Wrong("retention_days = 0", "`retention_days`: expected `int` >= 1"),
    Wrong("max_state_mb = 0", "`max_state_mb`: expected `int` >= 1"),
    Wrong("retry_for = 30", "`retry_for`: expected a duration such as"),
    Wrong("api_key_command = []", "`api_key_command`: expected `str`, got `array`"),
    Wrong("api_key_file = {}", "`api_key_file`: expected `str`, got `object`"),
    Wrong("base_url = 1", "`base_url`: expected `str`, got `int`"),
    Wrong("https_proxy = 1", "`https_proxy`: expected `str`, got `int`"),
    Wrong("ca_bundle = 1", "`ca_bundle`: expected `str`, got `int`"),
    Wrong("api_key = 'x'", "unknown setting `api_key`"),
    Wrong('"retry-for" = "1 s"', "unknown setting `retry-for`"),
    Wrong("fork = 3", "`fork`: expected `object`, got `int`"),
    Wrong("projects = 3", "`projects`: expected `object`, got `int`"),
    Wrong("fork.backend = 'x'", "`fork.backend`: invalid enum value 'x'"),
    Wrong("fork = {backend = 'x'}", "`fork.backend`: invalid enum value 'x'"),
    Wrong("backend = 'session'", "`fork.backend`: invalid enum value 'session'", "[fork]"),
    Wrong("model = 3", "`fork.model`: expected `str`, got `int`", "[fork]"),
    Wrong("deadline = 3", "`fork.deadline`: expected a duration such as", "[fork]"),
    Wrong("worker_idle = 3", "`fork.worker_idle`: expected a duration such as", "[fork]"),
    Wrong("digest_tokens = 1999", "`fork.digest_tokens`: expected `int` >= 2000", "[fork]"),
    Wrong("digest_model = 1", "`fork.digest_model`: expected `str`, got `int`", "[fork]"),
    Wrong("max_tokens = 1", "unknown setting `fork.max_tokens`", " [ fork ] # here"),
    Wrong("off = 1", '`projects."/a.b/c".off`: expected `bool`', '[projects."/a.b/c"]'),
    Wrong("x = 1", 'unknown setting `projects."/a.b/c".x`', "[projects.'/a.b/c']"),
    Wrong("name = 1", '`projects."/a.b/c".name`: expected `str`', '["projects"."/a.b/c"]'),
    Wrong("[compaction]", "unknown setting `compaction`"),
    Wrong("[[fork]]", "`fork`: expected `object`, got `array`"),
    Wrong("= 3", "Invalid statement"),
    Wrong("retry_for = ", "Invalid value"),
    Wrong('retry_for = "1 s', "Illegal character '\\n'"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.line)
def test_a_wrong_line_is_named(wrong: Wrong) -> None:
    before = [
        "# backend = model = off = name = retry_for = 3",
        "",
        "# deadline = 3",
    ]
    if wrong.table:
        before += ['[projects."/other"]', "off = true", 'name = "x"', "", wrong.table]
    told = fault("\n".join([*before, wrong.line, "# the end"]))
    assert told.fact.startswith(wrong.said)
    assert told.line == len(before) + 1
    assert str(told) == f"{FILE}:{told.line}: {told.fact}"


def test_a_setting_twice() -> None:
    told = fault('retry_for = "1 s"\nretry_for = "2 s"\n')
    assert told.fact == "Cannot overwrite a value"
    assert told.line == 2


def test_a_value_that_never_ends() -> None:
    told = fault('a = "x"\nretry_for =')
    assert (told.line, told.fact) == (2, "Invalid value")


def test_a_list_over_several_lines_is_named_by_its_last() -> None:
    told = fault('exclude = [\n  "a",\n  3,\n]\nretention_days = 2\n')
    assert (told.line, told.fact) == (4, "`exclude`: expected `str`, got `int`")


def test_the_first_of_two_faults_is_told() -> None:
    told = fault("retention_days = 0\nfork.backend = 3\nretry_for = 3\n")
    assert told.line == 1


def test_two_project_tables_of_which_one_is_wrong() -> None:
    told = fault('[projects."/a"]\noff = true\n[projects."/b"]\noff = "no"\n')
    assert told.line == 4


def test_a_long_text_does_not_look_like_a_setting() -> None:
    told = fault('memory_language = """\nretry_for = 3\n"""\nretry_for = 3\n')
    assert told.line == 4


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(ConfigError) as told:
        config.parse(b"# a\n# \xff\n", FILE, ENV)
    assert (told.value.line, told.value.fact) == (2, "not UTF-8")


class TestLoading:
    def test_a_missing_file_gives_the_defaults(self, tmp_path: Path) -> None:
        found = config.load({"HOME": str(tmp_path)})
        assert found.settings == Settings()
        assert found.memory_root == tmp_path / ".cli-tweaks" / "memory"
        assert (found.home, found.file) == (tmp_path, tmp_path / ".config/memoryd/config.toml")
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_there(self, tmp_path: Path) -> None:
        file = tmp_path / ".config" / "memoryd" / "config.toml"
        file.parent.mkdir(parents=True)
        file.write_text("retention_days = 3\n")
        assert config.load({"HOME": str(tmp_path)}).settings.retention_days == 3

    def test_one_that_can_not_be_read(self, tmp_path: Path) -> None:
        (tmp_path / ".config" / "memoryd" / "config.toml").mkdir(parents=True)
        with pytest.raises(ConfigError, match="cannot be read: Is a directory") as told:
            config.load({"HOME": str(tmp_path)})
        assert told.value.line == 0


class TestMemoryRoot:
    @pytest.mark.parametrize(
        ("value", "found"),
        [
            ("~/m", "/home/u/m"),
            ("$HOME/m", "/home/u/m"),
            ("/srv/my notes", "/srv/my notes"),
            ("~/größe", "/home/u/größe"),
            ("m", "/home/u/m"),
            ("~/a/../b/./c/", "/home/u/b/c"),
        ],
    )
    def test_of_the_file_and_of_the_environment(self, value: str, found: str) -> None:
        assert parsed(f'memory_root = "{value}"').memory_root == Path(found)
        named = {**ENV, "MEMORYD_MEMORY_ROOT": value}
        assert parsed('memory_root = "/elsewhere"', named).memory_root == Path(found)

    def test_a_path_that_can_not_be(self) -> None:
        told = fault('\nmemory_root = "/a\\u0000b"')
        assert (told.line, told.fact) == (2, "`memory_root`: no path can hold a NUL")


class TestProjects:
    def test_the_nearest_table_above_counts(self) -> None:
        found = parsed(
            '[projects."~/work"]\nname = "all"\n[projects."/home/u/work/api"]\nname = "api"\n'
        )
        assert found.project_settings(Path("/home/u/work/api/src")).name == "api"
        assert found.project_settings(Path("/home/u/work/api")).name == "api"
        assert found.project_settings(Path("/home/u/work/apix")).name == "all"
        assert found.project_settings(Path("/home/u/worker")) == ProjectSettings()

    def test_one_for_the_home_itself(self) -> None:
        found = parsed('[projects."~"]\nname = "all"\n')
        assert found.project_settings(Path("/home/u/x")).name == "all"

    @pytest.mark.parametrize(
        ("glob", "directory", "excluded"),
        [
            ("~/secret", "/home/u/secret", True),
            ("~/secret", "/home/u/secret/deep/er", True),
            ("~/secret", "/home/u/secrets", False),
            ("~/work/*", "/home/u/work/api/src", True),
            ("~/work/*", "/home/u/work", False),
            ("*/node_modules", "/home/u/x/node_modules/y", True),
            ("/srv/**", "/srv/a", True),
            ("secret", "/home/u/secret", True),
            ("~/S*", "/home/u/secret", False),
        ],
    )
    def test_globs_that_exclude(self, glob: str, directory: str, *, excluded: bool) -> None:
        found = parsed(f'exclude = ["{glob}"]')
        assert found.excludes(Path(directory)) is excluded

    @pytest.mark.parametrize("named", ["~/s", "$HOME/s", "${HOME}/s", "s"])
    def test_a_path_is_named_as_everywhere_in_the_file(self, named: str) -> None:
        assert parsed(f'exclude = ["{named}"]').excludes(Path("/home/u/s/deep"))
        table = parsed(f'[projects."{named}"]\nname = "x"\n')
        assert table.project_settings(Path("/home/u/s/deep")).name == "x"

    def test_links_are_followed_on_both_sides(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        real = tmp_path / "disk" / "secret" / "api"
        real.mkdir(parents=True)
        home.symlink_to(tmp_path / "disk")
        env = {"HOME": str(home)}
        by_link = parsed('exclude = ["~/secret/*"]\n', env)
        by_path = parsed(f'exclude = ["{real}"]\n', env)
        table = parsed('[projects."~/secret"]\nname = "x"\n', env)
        for directory in (real, home / "secret" / "api"):
            assert by_link.excludes(directory)
            assert by_path.excludes(directory)
            assert table.project_settings(directory).name == "x"
        assert not by_link.excludes(real.parent)

    def test_a_table_that_says_off(self) -> None:
        found = parsed('[projects."~/work"]\noff = true\n[projects."~/work/api"]\noff = false\n')
        assert found.excludes(Path("/home/u/work/x"))
        assert not found.excludes(Path("/home/u/work/api"))

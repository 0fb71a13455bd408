"""Every command and option says what it does, and docs/commands.md says the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.cli.command import Command
from tools.commands_page import render

from strandline import __version__
from strandline.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "duckdb", "pyarrow", "sqlglot", "numba", "numpy", "pandas", "rich")


def commands() -> dict[str, click.Command]:
    context = click.Context(cli, **cli.context_settings)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert page == render(), "Run: python tools/commands_page.py > docs/commands.md"


def leaves(command: click.Command) -> list[click.Command]:
    """A command, or the commands of a group."""
    return list(command.commands.values()) if isinstance(command, click.Group) else [command]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_each_of_its_options_has_help(name: str) -> None:
    command = commands()[name]
    assert command.help
    assert "Example" in command.help, f"{name} shows no example"
    for each in leaves(command):
        assert each.help, f"{name} {each.name} has no help"
        assert "Example" in each.help, f"{name} {each.name} shows no example"
        for option in each.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.opts[-1]} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_what_all_have_and_its_documentation(name: str) -> None:
    for each in leaves(commands()[name]):
        options = {option for param in each.params for option in param.opts}
        assert options >= {"--quiet", "-v", "--verbose", "--json"}, each.name
    assert f"\n## {name}\n" in (ROOT / "docs" / "commands.md").read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_stands_in_the_file_that_the_list_names(name: str) -> None:
    callback = inspect.unwrap(commands()[name].callback or (lambda: None))
    assert Path(inspect.getfile(callback)).name == f"{COMMANDS[name]}.py"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_and_ends_well(command: Command, flag: str) -> None:
    ran = command(flag)
    assert ran.code == 0
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)
    assert ran.err == ""


@pytest.mark.parametrize("words", [(), ("whatif",), ("view",)])
def test_no_line_of_a_list_of_commands_is_cut(command: Command, words: tuple[str, ...]) -> None:
    listed = command(*words, "--help").out.partition("Options:")[2].splitlines()
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_well(command: Command, name: str) -> None:
    ran = command(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: strandline {name}")


def test_the_version_is_told(command: Command) -> None:
    ran = command("--version")
    assert (ran.code, ran.out) == (0, f"strandline, version {__version__}\n")


@pytest.mark.parametrize(
    "code",
    [
        "import strandline",
        "import strandline, contextlib\nfrom strandline.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])",
        "import strandline, contextlib\nfrom strandline.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['diff', '--help'])",
    ],
    ids=["import strandline", "strandline --help", "strandline diff --help"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    program = f"import sys\n{code}\nprint('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert ran.stdout.splitlines()[-1] == "loaded:"


def test_a_diff_of_two_small_files_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("id,name\n1,a\n2,c\n")
    program = (
        "import sys, contextlib\nfrom strandline.cli import main\n"
        f"with contextlib.suppress(SystemExit): main(['diff', '{tmp_path}/a.csv', '{tmp_path}/b.csv', '--key', 'id'])\n"
        "heavy = ('pyspark', 'duckdb', 'numba', 'sqlglot', 'pandas')\n"
        "print('loaded:', *(name for name in heavy if name in sys.modules))\n"
        "import pandas"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert "1 updated" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "loaded:"


def test_the_command_runs_as_a_module_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "strandline.cli", "--version"], capture_output=True, text=True, cwd=ROOT / "src"
    )
    assert (ran.returncode, ran.stdout) == (0, f"strandline, version {__version__}\n")


def test_a_command_that_is_none_is_told_the_nearest(command: Command) -> None:
    assert "There is no command 'dif'. Did you mean diff?" in command("dif").err
    ran = command("xyzzy", "--json")
    assert (ran.code, ran.json["error"]) == (2, "UsageError")
    assert "Choose from diff, show" in ran.err


def test_without_a_command_help_is_shown(command: Command) -> None:
    ran = command()
    assert ran.code == 2
    assert ran.err.startswith("Usage: strandline")


@pytest.mark.parametrize("words", [("create", "{}"), ("dump", "shop", "{}"), ("dumps", "{}"), ("restore", "{}", "x")])
def test_a_file_where_a_folder_is_wanted_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("x")
    command("create", "shop")
    ran = command(*(word.format("notes.txt") for word in words))
    assert (ran.code, ran.out) == (2, "")
    assert "Opening notes.txt: notes.txt is a file" in ran.err


def test_nothing_is_coloured_beside_a_terminal(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,2\n")
    (tmp_path / "b.csv").write_text("id,v\n1,3\n")
    for words in (
        ("diff", tmp_path / "a.csv", tmp_path / "b.csv", "--key", "id"),
        ("create", tmp_path / "shop"),
        ("load", tmp_path / "shop", "t", tmp_path / "a.csv", "--key", "id"),
        ("snapshots", tmp_path / "shop"),
        ("log", tmp_path / "shop"),
        ("dump", tmp_path / "shop", tmp_path / "backups"),
        ("dumps", tmp_path / "backups"),
        ("query", tmp_path / "shop", "select * from nothing"),
    ):
        ran = command(*words)
        assert "\x1b" not in ran.out + ran.err, words

"""What the pages show is what happens: their examples are run, in an empty folder, and their output compared.

`python` blocks share one namespace; a `text` block holds what the block before printed; in a `console` block each line
that begins with `$` is run, and what follows is what it says, on both streams. In expected output `…` stands for
anything, and spaces at the ends of lines don't count. Blocks after `<!-- spark -->` need a session and run in the
suite's own; `sh` blocks and indented ones are not run.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import itertools
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools import api_page

import strandline as sl
from strandline.cli import main
from strandline.cli.main import cli
from strandline.differential.options import DiffOptions

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^(<!-- spark -->\n)?```(python|text|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = ("README.md", "PACKAGE.md", "docs/guide.md", "docs/differentials.md", "docs/changes.md")
COMMAND = re.compile(r"`(strandline [^`]+)`|(?:^|   )\$? ?(strandline [a-z].*?)(?=$|   +)", re.MULTILINE)
"""A command in the text, in a block or in an indented line, where several may stand side by side."""
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


class Page:
    """One page being read aloud: its names, and what was printed last."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"sl": sl}
        self.printed = ""

    def run(self, kind: str, block: str) -> None:
        if kind == "python":
            self.printed = self._caught(lambda: exec(block, self.names))
        elif kind == "text":
            assert_like(block, self.printed)
        else:
            for command, expected in commands(block):
                name, *arguments = shlex.split(command)
                assert name == "strandline", f"only strandline is run here, not {name}"
                assert_like(expected, self._caught(functools.partial(run_command, arguments)))

    def _caught(self, work: Any) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            work()
        return out.getvalue()


def run_command(arguments: list[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(arguments)


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it is said to print."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def assert_like(expected: str, printed: str) -> None:
    """A line of `…` alone stands for any lines, `…` inside a line for any text."""
    lines = [line.rstrip() for line in expected.strip().splitlines()]
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n" for line in lines
    )
    told = "".join(line.rstrip() + "\n" for line in printed.strip().splitlines())
    assert re.fullmatch(pattern, told), f"expected:\n{expected}\nprinted:\n{printed}"


def write_extracts() -> None:
    """The files of which the pages speak, in Parquet and as CSV."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64()), ("price", pa.float64())])
    monday = [(1, "anchor", 3, 40.0), (2, "buoy", 5, 12.5), (3, "chain", 8, 3.2)]
    tuesday = [(2, "buoy", 6, 12.5), (3, "chain", 8, 3.2), (4, "dinghy", 1, 900.0)]
    for name, rows in (("monday", monday), ("tuesday", tuesday)):
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        pq.write_table(table, f"{name}.parquet")


def read_aloud(page: str, *, on_spark: bool = True) -> None:
    write_extracts()
    reader = Page()
    for needs_spark, kind, block in BLOCK.findall((ROOT / page).read_text("utf-8")):
        if on_spark or not needs_spark:
            reader.run(kind, block)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


ON_SPARK = [page for page in PAGES if "<!-- spark -->" in (ROOT / page).read_text("utf-8")]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ON_SPARK])
def test_the_examples_of_a_page_do_what_it_says(page: str) -> None:
    read_aloud(page)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", ON_SPARK)
def test_the_examples_of_a_page_do_what_it_says_on_spark(page: str) -> None:
    read_aloud(page)


def pages_of_text() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", pages_of_text(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def misuse(words: list[str]) -> str:
    """What the command line would say against a command before it does anything; empty for a good one."""
    command: click.Command | None = cli
    context = click.Context(cli)
    try:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command, words = command.get_command(context, words[0]), words[1:]
        if command is None:
            return "there is no such command"
        command.make_context("strandline", list(words))
    except (click.MissingParameter, click.exceptions.Exit):  # it is only named, or asks for help
        pass
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", pages_of_text(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_spoken_of_can_be_given(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # also of commands as they were
        return
    for quoted, shown in COMMAND.findall(page.read_text("utf-8")):
        command = " ".join((quoted or shown).split())
        if not re.search(r"…|\[OPTIONS\]|<\(", command):
            words = list(itertools.takewhile(lambda word: word not in {">", "|", "#"}, shlex.split(command)))
            assert not misuse(words[1:]), command


def test_the_page_of_the_interface_is_what_the_docstrings_say() -> None:
    page = (ROOT / "docs/api.md").read_text("utf-8")
    assert page == api_page.render(), "Run: python tools/api_page.py > docs/api.md"


def test_everything_that_users_may_call_says_what_it_does() -> None:
    assert set(sl.__all__) - {"StrandlineError", "__version__"} <= {
        *api_page.FUNCTIONS,
        *(name for name, _, _ in api_page.CLASSES),
    }
    for name, module, _ in api_page.CLASSES:
        found = getattr(importlib.import_module(module), name)
        assert api_page.words(found), name
        for member, value in api_page.members(name, found):
            assert api_page.words(value), f"{name}.{member} has no docstring"


def test_every_option_of_diff_is_documented() -> None:
    text = (ROOT / "docs/differentials.md").read_text("utf-8")
    for option in fields(DiffOptions):
        assert f"| `{option.name}` |" in text, option.name


def test_every_file_and_function_that_the_papers_page_names_is_there() -> None:
    """A file is named by its path, in src/strandline or in the repository; its functions may follow in parentheses."""
    text = (ROOT / "docs/papers.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)`(?: \(((?:`\w+`(?:, )?)+)\))?", text)
    assert len(named) > 80
    for name, functions in named:
        path = next((base / name for base in (ROOT / "src/strandline", ROOT) if (base / name).exists()), None)
        assert path is not None, name
        defined = {getattr(node, "name", None) for node in ast.walk(ast.parse(path.read_text("utf-8")))}
        for function in re.findall(r"`(\w+)`", functions):
            assert function in defined, f"{name} has no {function}"


def test_every_folder_that_the_papers_page_names_is_there() -> None:
    text = (ROOT / "docs/papers.md").read_text("utf-8")
    for name in re.findall(r"`((?:\w+/)+)`", text):
        assert (ROOT / "src/strandline" / name).exists() or (ROOT / name).exists(), name


def test_the_site_leads_to_every_page() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def test_the_page_of_the_package_index_links_to_nothing_that_is_not_there() -> None:
    """A package index shows the page alone: what is linked relatively leads nowhere there."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["readme"]
    assert not LINK.findall((ROOT / named).read_text("utf-8"))

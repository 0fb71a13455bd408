"""What the core install does, and what it says where an extra is needed: other Pythons, with packages hidden."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from strandline.errors import EXTRAS

ROOT = Path(__file__).parent.parent
HIDDEN = sorted(package for packages in EXTRAS.values() for package in packages)


def without(packages: list[str], program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a program says in a Python that has none of the packages."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n"
    command = [sys.executable, "-c", hide + textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def run(words: str) -> str:
    return f"from strandline.cli import main\nmain({words.split()!r})"


@pytest.fixture
def extracts(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("id,v\n1,a\n2,c\n3,d\n")
    return tmp_path


def test_each_extra_of_the_distribution_is_known_with_its_packages() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {
        extra: {re.split(r"[\[><=]", requirement)[0].replace("-", "_") for requirement in requirements}
        for extra, requirements in optional.items()
        if extra not in ("all", "dev", "docs", "bench")
    }
    assert {extra: set(packages) & names[extra] for extra, packages in EXTRAS.items()} == names
    assert optional["all"] == [f"strandline[{','.join(EXTRAS)}]"]


def test_the_distribution_takes_every_file_of_the_package_and_of_the_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    package = ROOT / "src" / "strandline"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    others = {str(path.relative_to(package)) for path in files if path.suffix != ".py"}
    assert others == set(project["tool"]["setuptools"]["package-data"]["strandline"])
    assert all((path.parent / "__init__.py").exists() for path in files), "a folder that is no package is left out"
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text("utf-8").splitlines()]
    named = [ROOT / name for word, *names in lines if word in ("graft", "include") for name in names]
    assert [path for path in named if not path.exists()] == []


def test_the_page_of_a_package_index_links_to_nothing_that_is_only_in_the_source() -> None:
    page = (ROOT / "PACKAGE.md").read_text("utf-8")
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", page) == []


def test_the_core_compares_keeps_supposes_views_copies_dumps_and_restores(extracts: Path) -> None:
    ran = without(
        HIDDEN,
        """
        import strandline as sl

        changes = sl.diff("a.csv", "b.csv", key="id")
        print(changes.summary().inserted, changes.summary().updated)
        store = sl.create("shop")
        store.create_table("t", "a.csv", key="id")
        store.snapshot("monday")
        store.table("t").apply(changes)
        guess = store.table("t").what_if("guess")
        guess.delete(where="id = 1")
        print(guess.to_arrow().num_rows, store.query("select count(*) n from t").to_pylist())
        view = store.view("late", "select id, v from t where v > 'b'")
        view.replicate("duckdb:///copy.duckdb#late")
        print(store.copies()[0].verify().equal)
        store.dump("dumps")
        sl.restore("dumps", "again")
        print(sl.open("again").table("t").to_arrow().num_rows)
        """,
        extracts,
    )
    assert ran.stdout.splitlines() == ["1 1", "2 [{'n': 3}]", "True", "3"], ran.stderr


def test_the_tour_runs_in_the_core(tmp_path: Path) -> None:
    program = f"""
        import os, sys
        os.environ["COLUMNS"] = "100"
        sys.path.insert(0, {str(ROOT)!r})
        from tests.test_docs import read_aloud
        read_aloud("README.md", on_spark=False)
        """
    ran = without(HIDDEN, program, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("spark", "diff a.csv b.csv --key id --runner spark"),
        ("fast", "diff a.csv b.csv --key id --algorithm window"),
        ("postgres", "base add postgresql://localhost/shop#t"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(extracts: Path, extra: str, words: str) -> None:
    ran = without(list(EXTRAS[extra]), run(words), extracts)
    assert ran.returncode == 2
    assert f"pip install 'strandline[{extra}]'" in ran.stderr
    assert "mistake" not in ran.stderr


@pytest.mark.parametrize("words", ["create shop", "diff a.csv --key id --state s", "diff a.csv b.csv --out c.changes"])
def test_a_system_without_file_locks_is_named_in_a_sentence(extracts: Path, words: str) -> None:
    ran = without(["fcntl", "resource"], run(words), extracts)
    assert ran.returncode == 2
    assert ran.stderr.endswith("can't lock files. Strandline runs on Linux and macOS; on Windows, use it inside WSL.\n")


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("delta", "sl.diff('delta', 'delta', key='id')"),
        ("iceberg", "sl.diff('ice', 'ice', key='id')"),
        ("delta", "sl.base('sqlite:///f.db#t').replicate('delta://copy')"),
        ("iceberg", "sl.base('sqlite:///f.db#t').replicate('iceberg://copy')"),
        ("excel", "sl.diff('b.xlsx', 'b.xlsx', key='id')"),
        ("encrypt", "sl.create('shop').dump('dumps', key_file='key')"),
        ("spark", "sl.session()"),
        ("spark", "sl.register()"),
    ],
)
def test_a_call_that_needs_an_extra_names_it(tmp_path: Path, extra: str, program: str) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "ice" / "metadata").mkdir(parents=True)
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").write_text("{}")
    with contextlib.closing(sqlite3.connect(tmp_path / "f.db")) as database:
        database.execute("create table t (id integer primary key)")
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04")
    lines = ["import strandline as sl", "try:", f"    {program}", "except sl.StrandlineError as error:"]
    ran = without(list(EXTRAS[extra]), "\n".join([*lines, "    print(type(error).__name__, error)"]), tmp_path)
    assert ran.stdout.startswith("MissingExtra"), ran.stdout + ran.stderr
    assert f"pip install 'strandline[{extra}]'" in ran.stdout

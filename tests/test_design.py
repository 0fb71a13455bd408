"""docs/design.md speaks of what is there: every name in the five walks and in the glossary exists, where it says."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from benchmarks.walks import observed
from benchmarks.walks import walks as taken

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src/strandline"
PAGE = (ROOT / "docs/design.md").read_text("utf-8")
SEVERAL = re.compile(r"((?:`[\w.]+`, )*`[\w.]+`) \(`([\w/]+\.py)`\)")
WALK = re.compile(r"^### (.+?)$\n(.*?)(?=^##)", re.DOTALL | re.MULTILINE)
MOST_STEPS = 12
ONLY_OF_LARGE_SIDES = {"merge_range"}


def section(title: str) -> str:
    """The text below a heading of the second level."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0] + "\n##"


def names_of(path: Path) -> set[str]:
    """What a file defines: functions, classes, constants, and the methods and fields of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            names |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def placed(text: str) -> list[tuple[str, str]]:
    """Each name with the file that the text gives for it."""
    return [(name, file) for names, file in SEVERAL.findall(text) for name in re.findall(r"`([\w.]+)`", names)]


def walks() -> dict[str, str]:
    """The five walks, each with its numbered steps."""
    return {title: text.split("\n**", 1)[0] for title, text in WALK.findall(section("Five walks")) if "\n1. " in text}


@pytest.mark.parametrize(("name", "file"), placed(PAGE))
def test_every_name_stands_in_the_file_that_the_page_gives(name: str, file: str) -> None:
    path = HOUSE / file
    assert path.exists(), f"docs/design.md names {file}, which is not there"
    assert name in names_of(path), f"docs/design.md says that {name} stands in {file}"


def test_each_of_the_five_walks_has_at_most_twelve_functions() -> None:
    assert len(walks()) == 5
    for title, text in walks().items():
        steps = placed(text)
        assert 4 <= len(steps) <= MOST_STEPS, title


def test_each_walk_passes_the_functions_that_the_page_names(tmp_path: Path) -> None:
    texts = walks().values()
    for text, (title, walk) in zip(texts, taken(tmp_path, f"sqlite:///{tmp_path}/copy.db").items(), strict=True):
        walk()
        called = {(code.co_filename.rpartition("/strandline/")[2], code.co_qualname) for code in observed(walk)}
        called |= {(file, name.partition(".")[0]) for file, name in called}  # a class by its methods
        missed = {name for name, file in placed(text) if (file, name) not in called}
        assert missed <= ONLY_OF_LARGE_SIDES, title


def test_every_word_of_the_glossary_has_a_name_in_the_source() -> None:
    rows = [line for line in section("Glossary").splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) > 25
    for row in rows:
        assert placed(row), f"no name and file in: {row}"


def test_no_public_class_has_its_name_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(HOUSE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}

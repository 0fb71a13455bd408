"""The examples in docstrings are run: what they show is what happens."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
SHOWN = sorted(file for file in SOURCE.rglob("*.py") if ">>> " in file.read_text("utf-8"))
MODULES = [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in SHOWN]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_show(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed

"""Every algorithm gives the changes that the model gives, whatever the types, the order and the cuts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests import model
from tests.examples import LAWS
from tests.random_tables import Case, cases

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.detect.question import Question
from strandline.relations import spooled

ALGORITHMS = ("merge", "hash", "kb", "kbp", "window")
WITH_BEFORE = ("merge", "hash", "kbp", "window")


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny inputs in several parts, and several work items: what large inputs come to."""
    monkeypatch.setattr(spooled, "PART_ROWS", 2)
    monkeypatch.setattr(Question, "pieces", lambda *_: 3)
    return


def changed(case: Case, algorithm: str, **options: Any) -> ChangeSet:
    old, new = case.states
    found = sl.diff(old, new, key=case.key, algorithm=algorithm, runner="inline", **options)
    return ChangeSet(found.header, found.to_arrow())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@LAWS
@given(case=cases())
def test_an_algorithm_finds_what_the_model_finds(algorithm: str, case: Case) -> None:
    old, new = (model.relation_of(table, case.key) for table in case.states)
    expected = model.difference(old, new)
    found = changed(case, algorithm)
    assert model.kinds_of(found) == {key: change.kind for key, change in expected.items()}
    if algorithm in WITH_BEFORE:
        assert model.keyed_of(found) == expected
    assert found.header.counts.unchanged == len(new) - sum(change.kind != "delete" for change in expected.values())


@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@LAWS
@given(case=cases())
def test_cutting_into_pieces_changes_nothing(algorithm: str, case: Case) -> None:
    old, new = (model.relation_of(table, case.key) for table in case.states)
    expected = model.difference(old, new)
    found = changed(case, algorithm)
    assert model.kinds_of(found) == {key: change.kind for key, change in expected.items()}
    if algorithm in WITH_BEFORE:
        assert model.keyed_of(found) == expected

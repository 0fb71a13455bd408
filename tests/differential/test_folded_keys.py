"""Rows matched by trimmed keys, or without regard to case: what an oracle that folds both sides by hand says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import strandline as sl
from strandline.errors import InputError, KeysError, StateError

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int8()), ("v", pa.int64())])
ends = st.sampled_from(["", " ", "\t"])
texts = st.tuples(ends, st.sampled_from(["a", "A", "ä", "Ä", "b "]), ends)
rows = st.lists(st.tuples(texts.map("".join), st.integers(0, 1), st.integers(0, 2)), max_size=5)
RULES = ["trim", "casefold", "trim casefold"]


def folded(text: str, rule: str) -> str:
    text = text.strip() if "trim" in rule else text
    return text.lower() if "casefold" in rule else text


def by_key(given: list[tuple[Any, ...]], rule: str) -> dict[tuple[Any, ...], int] | None:
    """The rows by their folded keys; None if two have one."""
    found = {(folded(name, rule), n): v for name, n, v in given}
    return found if len(found) == len(given) else None


def table(given: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


@settings(max_examples=examples(40))
@given(rows, rows, st.sampled_from(RULES), st.sampled_from(["merge", "hash", "window", "kb"]))
def test_rows_are_matched_by_their_folded_keys(old: Any, new: Any, rule: str, algorithm: str) -> None:
    before, after = by_key(old, rule), by_key(new, rule)

    def compared() -> pa.Table:
        options: Any = {"algorithm": algorithm, "compare": {"name": rule}}
        return sl.diff(table(old), table(new), key=["name", "n"], runner="inline", **options).to_arrow()

    if before is None or after is None:
        with pytest.raises(KeysError, match=r"more than onc?e|that are one by name="):
            compared()
        return
    expected: set[Any] = {(key, "insert", v) for key, v in after.items() if key not in before}
    expected |= {(key, "delete", None) for key in before if key not in after}
    expected |= {(key, "update", v) for key, v in after.items() if key in before and before[key] != v}
    assert {((row["name"], row["n"]), row["_change"], row["v"]) for row in compared().to_pylist()} == expected


def test_keys_that_are_one_by_the_rule_are_named_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("id,v\nx,1\n")
    (tmp_path / "new.csv").write_text("id,v\nA1,1\n a1,2\nb,3\n")
    with pytest.raises(KeysError, match=r"the new side holds keys that are one by id=trim casefold") as refused:
        sl.diff(tmp_path / "old.csv", tmp_path / "new.csv", key="id", compare={"id": "trim casefold"})
    assert "(id='A1')" in str(refused.value)
    assert "(id=' a1')" in str(refused.value)
    assert "'b'" not in str(refused.value)


def test_a_database_and_renamed_columns_are_folded_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "f.db")) as database:
        database.execute("create table t (code text, v integer)")
        database.execute("insert into t values ('A ', 1), ('B', 2)")
        database.commit()
    new = pa.table({"id": ["a", "b"], "v": [1, 3]})
    options: Any = {"rename": {"code": "id"}, "compare": {"id": "trim casefold"}}
    found = sl.diff(f"sqlite:///{tmp_path}/f.db#t", new, key="id", **options)
    assert [(row["id"], row["_before"], row["v"]) for row in found.to_arrow().to_pylist()] == [("b", {"v": 2}, 3)]


def test_a_state_of_folded_keys_goes_on_with_the_same_rule_alone(tmp_path: Path) -> None:
    old, new = pa.table({"id": ["A "], "v": [1]}), pa.table({"id": ["a", "b"], "v": [1, 2]})
    rule: Any = {"compare": {"id": "trim casefold"}}
    sl.diff(None, old, key="id", save_state=str(tmp_path / "state"), **rule)
    with pytest.raises(StateError, match="normalisation"):
        sl.diff(tmp_path / "state", new, key="id")
    assert sl.diff(tmp_path / "state", new, key="id", **rule).to_arrow().column("id").to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compare": {"id": "empty"}}, "is not for key column 'id'"),
        ({"compare": {"n": "trim"}}, "does not fit column 'n'"),
        ({"compare": {"id": "trim"}, "algorithm": "merge", "keep_sorted": "kept"}, "folded keys"),
    ],
)
def test_what_a_key_can_not_be_compared_by_is_refused(options: Any, message: str) -> None:
    side = pa.table({"id": ["a"], "n": [1], "v": [1]})
    with pytest.raises(InputError, match=message):
        sl.diff(side, side, key=["id", "n"], **options)

"""No column of ours ever meets a user's: tables with columns of all names that our own code uses, in every way."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from tests.internal_names import internal_names
from tests.values.properties import for_all

import strandline as sl
from strandline.changes import OURS, RESERVED
from strandline.errors import SchemaError
from strandline.storage import MemoryStorage
from strandline.store import create_on

TABLES_OWN = (*RESERVED, "_deleted")
NAMES = [name for name in internal_names() if name not in TABLES_OWN and not name.lower().startswith(OURS[:-1])]
WAYS: dict[str, dict[str, Any]] = {
    "merge": {},
    "hash": {},
    "window": {},
    "pair": {"algorithm": "hash", "duplicates": "pair"},
    "kb": {"state": "state"},
    "kbp": {"state": "state", "column_signatures": True},
    "kbp with the old records": {"algorithm": "kbp"},
}
Rows = dict[int, int]
OLD: Rows = {1: 10, 2: 20, 3: 30, 5: 50}
NEW: Rows = {5: 50, 2: 21, 4: 40, 1: 10}


def table(rows: Rows, names: list[str], key: str = "id") -> pa.Table:
    """One row for each key; the columns of a row hold its number and their own place added up."""
    columns = {key: list(rows)}
    return pa.table(columns | {name: [value + place for value in rows.values()] for place, name in enumerate(names)})


def told(rows: pa.Table, names: list[str], key: str = "id") -> set[tuple[Any, ...]]:
    """Kind, key and what the columns hold, less their places: one value for a whole row, or the rows are wrong."""
    found = set()
    for row in rows.to_pylist():
        values = {None if row[name] is None else row[name] - place for place, name in enumerate(names)}
        found.add((row.get("_change"), row[key], *values))
    return found


def expected(old: Rows, new: Rows) -> set[tuple[Any, ...]]:
    """The differential in plain Python."""
    changed = {("update", key, new[key]) for key in old if key in new and old[key] != new[key]}
    gone, come = {("delete", key, None) for key in old.keys() - new.keys()}, new.keys() - old.keys()
    return changed | gone | {("insert", key, new[key]) for key in come}


def differential(way: str, tmp_path: Path, names: list[str], key: str = "id") -> sl.Changes:
    options = {"algorithm": way.split()[0], **WAYS[way]}
    files = [tmp_path / f"{way}-{side}.parquet" for side in ("old", "new")]
    for file, rows in zip(files, (OLD, NEW), strict=True):
        pq.write_table(table(rows, names, key), file)
    old: Path | None = files[0]
    if state := options.pop("state", None):
        options |= {"state": str(tmp_path / f"{way}-{state}")}
        sl.diff(
            pa.table({name: [] for name in (key, *names)}, schema=pq.read_schema(files[0])),
            files[0],
            key=key,
            runner="inline",
            save_state=options["state"],
            algorithm="kbp" if way == "kbp" else "kb",
            **{name: value for name, value in options.items() if name == "column_signatures"},
        )
        old = None
    return sl.diff(old, files[1], key=key, runner="inline", **options)


@pytest.mark.parametrize("way", WAYS)
def test_columns_of_all_our_names_are_compared_and_applied(way: str, tmp_path: Path) -> None:
    changes = differential(way, tmp_path, NAMES)
    assert told(changes.to_arrow(), NAMES) == expected(OLD, NEW)
    if way != "pair":
        applied = changes.apply(table(OLD, NAMES), runner="inline").to_arrow()
        assert told(applied, NAMES) == {(None, key, value) for key, value in NEW.items()}


_WAY = st.sampled_from(sorted(WAYS))


@for_all(30, way=_WAY, names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
def test_any_of_our_names_may_be_the_key(tmp_path_factory: pytest.TempPathFactory, way: str, names: list[str]) -> None:
    changes = differential(way, tmp_path_factory.mktemp("names"), names[1:], names[0])
    assert told(changes.to_arrow(), names[1:], names[0]) == expected(OLD, NEW)


@pytest.mark.parametrize("name", RESERVED)
def test_names_of_the_change_set_are_refused(name: str) -> None:
    side = pa.table({"id": [1], name: [2]})
    with pytest.raises(SchemaError, match=f"column '{name}' has a name that change sets use themselves"):
        sl.diff(side, side, key="id", runner="inline")


def test_tables_and_what_ifs_hold_columns_of_all_our_names(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        stock = store.create_table("stock", table(OLD, NAMES), key="id")
        stock.apply(sl.diff(table(OLD, NAMES), table(NEW, NAMES), key="id", runner="inline"))
        assert told(stock.to_arrow(), NAMES) == {(None, key, value) for key, value in NEW.items()}
        stock.upsert(table({2: 22, 9: 90}, NAMES))
        stock.update(where='"k0" is not null', set={name: f'"{name}" + 0' for name in ("rows", "k0", "v", "_copy")})
        idea = stock.what_if("idea")
        idea.upsert(table({1: 11, 8: 80}, NAMES))
        idea.delete(where='"rows" is not null and "strandline row" is not null and id = 2')
        assert told(idea.changes().to_arrow(), NAMES) == {("update", 1, 11), ("insert", 8, 80), ("delete", 2, None)}
        idea.merge()
        chosen = ", ".join(f'"{name}"' for name in ("id", *NAMES))
        rows = store.query(f"select {chosen} from stock where id > 1")
        assert told(rows, NAMES) >= {(None, 8, 80)}
        assert told(rows, NAMES) == {row for row in told(stock.to_arrow(), NAMES) if row[1] > 1}


TARGETS = ("sqlite:///{folder}/copy.db#t", "duckdb:///{folder}/copy.duckdb#t", "parquet:///{folder}/t")


@pytest.mark.parametrize(("target", "keyed"), [*zip(TARGETS, itertools.cycle([False, True]), strict=False)])
def test_views_and_their_copies_hold_columns_of_all_our_names(tmp_path: Path, target: str, keyed: bool) -> None:
    # SQLite gives no column of a view the name "true" or "false".
    names = [name for name in NAMES if name.lower() not in ("true", "false")]
    chosen = ", ".join(f's."{name}"' for name in (["id"] if keyed else []) + names)
    with sl.create(tmp_path / "shop") as store:
        stock = store.create_table("stock", table(OLD, names), key="id")
        view = store.view("v", f'select {chosen} from stock s where s."i" >= 0', maintain="eager")
        copy = view.replicate(target.format(folder=tmp_path))
        stock.apply(sl.diff(table(OLD, names), table(NEW, names), key="id", runner="inline"))
        copy.refresh()
        assert copy.verify().equal


@pytest.mark.parametrize("name", [f"{OURS}x", f"{OURS.upper()}Y", OURS])
def test_a_column_that_readers_would_not_see_is_refused(name: str) -> None:
    with create_on(MemoryStorage()) as store:
        with pytest.raises(SchemaError, match="begins as ours do"):
            store.create_table("t", pa.table({"id": [1], name: [2]}), key="id")
        table = store.create_table("t", pa.table({"id": [1], "v": [2]}), key="id")
        with pytest.raises(SchemaError, match="begins as ours do"):
            table.add_column(name, pa.int64())
        with pytest.raises(SchemaError, match="begins as ours do"):
            table.rename_column("v", name)
        assert table.to_arrow().to_pylist() == [{"id": 1, "v": 2}]

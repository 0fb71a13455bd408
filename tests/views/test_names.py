"""Columns may be called what our own SQL calls things; a copy that fails to be made leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import SqlError
from strandline.storage import MemoryStorage
from strandline.store import create_on

NAMES = [
    "i",
    "n",
    "s",
    "d",
    "g",
    "r",
    "x",
    "y",
    "h",
    "v",
    "p0",
    "v0",
    "c0",
    "rowid",
    "count",
    "strandline row",
    "strandline 0",
]
NAMES += ["segment", "signature", "name", "state", 'quo"te', "sp ace", "ä", "select", "above", "upto", "number"]
_names = st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@settings(max_examples=examples(20))
@given(_names, st.sampled_from(["sqlite:///{}/a.db#{}", "duckdb:///{}/a.duckdb#{}", "parquet:///{}/{}"]), st.booleans())
def test_a_view_of_any_names_is_copied_and_refreshed(names: list[str], url: str, keyed: bool) -> None:
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        columns = {"the key": [1, 2, 3], **{name: [5, 5, 6] for name in names}}
        store.create_table("t", pa.table(columns), key="the key")
        shown = ", ".join(f"o.{quoted(name)}" for name in ([*names, "the key"] if keyed else names))
        twice = f"o.{quoted(names[0])} + o.{quoted(names[-1])} as twice"
        sql = f"select {shown}, {twice} from t o where o.{quoted(names[0])} < 10"
        copy = store.view("v", sql, maintain="eager").replicate(url.format(folder, "s"))
        store.table("t").upsert([{"the key": 3, **dict.fromkeys(names, 5)}, {"the key": 9, **dict.fromkeys(names, 5)}])
        done = copy.refresh()
        assert done.method == "difference"
        assert not done.unequal
        assert copy.verify()
        rows = Counter(tuple(row.values()) for row in store.view("v").to_arrow().to_pylist())
        assert sum(rows.values()) == copy.status()["rows"] == 4
        store.table("t").delete(where='"the key" > 1')
        assert copy.refresh().unequal == ""
        assert copy.verify()


@pytest.mark.parametrize(
    "kind", ["sqlite:///{}/a.db#v", "duckdb:///{}/a.duckdb#v", "parquet:///{}/v", "strandline:///{}/copies#v"]
)
def test_a_copy_that_can_not_be_filled_leaves_nothing(tmp_path: Path, kind: str) -> None:
    url = kind.format(tmp_path)
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "s": ["1", "no number"]}), key="k")
        view = store.view("v", "select k, cast(s as integer) as n from t")
        with pytest.raises(SqlError):
            view.replicate(url)
        assert store.copies() == []
        store.drop_view("v")
        store.table("t").delete(where="k = 2")
        copy = store.view("v", "select k, cast(s as integer) as n from t").replicate(url)
        assert copy.verify()
        assert copy.status()["rows"] == 1

"""Whatever has rows goes into the tools that people have, and shows itself in a notebook without trusting a value."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import InputError, MissingExtra

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with sl.create(tmp_path / "shop") as store:
        rows = pa.table({"id": [1, 2, 2**60 + 1], "name": ["anchor", None, EVIL], "qty": [3, None, 5]})
        store.create_table("stock", rows, key="id")
        store.table("stock").what_if("idea").delete(where="id = 2")
        store.view("few", "select id, name from stock where qty < 9")
        yield store


def things(store: sl.Store) -> dict[str, Any]:
    rows = store.table("stock").to_arrow()
    return {
        "Table": store.table("stock"),
        "WhatIf": store.what_if("idea"),
        "View": store.view("few"),
        "Snapshot": store.snapshot(),
        "Changes": sl.diff(rows.slice(0, 1), rows, key="id", runner="inline"),
    }


KINDS = ("Table", "WhatIf", "View", "Snapshot", "Changes")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_go_into_every_tool(shop: sl.Store, kind: str) -> None:
    thing = things(shop)[kind]
    rows = thing.to_arrow()
    assert pa.table(thing).equals(rows)
    assert pa.schema(thing).equals(rows.schema)
    assert duckdb.execute("select count(*) from thing").fetchall() == [(len(rows),)]
    frame = thing.to_pandas()
    assert pa.Table.from_pandas(frame, rows.schema, preserve_index=False).equals(rows)


def test_frames_take_what_to_arrow_takes(shop: sl.Store) -> None:
    shop.snapshot("monday")
    shop.table("stock").delete(where="id = 1")
    frame = shop.table("stock").to_pandas(at="monday", columns=["id"], where="id < 3")
    assert frame["id"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_become_a_polars_frame(shop: sl.Store, kind: str) -> None:
    import polars

    thing = things(shop)[kind]
    frame = thing.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.to_dicts() == thing.to_arrow().to_pylist() != []
    assert polars.DataFrame(thing).equals(frame)


def test_a_polars_frame_takes_what_to_arrow_takes_and_is_compared(shop: sl.Store) -> None:
    import polars

    frame = shop.table("stock").to_polars(columns=["id", "qty"], where="id < 3")
    changes = sl.diff(frame, frame.lazy().filter(polars.col("id") == 2), key="id", runner="inline")
    assert changes.to_polars()["_change", "id"].rows() == [("delete", 1)]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_missing_is_named(shop: sl.Store, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"{package} is not installed. Install it with: pip install {package}"):
        getattr(shop.table("stock"), f"to_{package}")()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Table", "<Table stock by id: 3 rows; id, name, qty>"),
        ("WhatIf", "<WhatIf idea over stock, level 1 by id: id, name, qty>"),
        ("View", "<View few by id: id, name; select id, name from stock where qty < 9>"),
        ("Snapshot", "<Snapshot at commit 4: stock>"),
        ("Changes", "<Changes keyed by id: 2 inserted, 0 updated, 0 deleted, 1 unchanged, a pyarrow Table → a pyarrow"),
    ],
)
def test_things_say_what_they_are(shop: sl.Store, kind: str, words: str) -> None:
    assert repr(things(shop)[kind]).startswith(words)


def test_a_store_its_branches_and_named_snapshots_say_what_they_are(shop: sl.Store) -> None:
    assert repr(shop) == f"<Store {shop.url}: stock>"
    with shop.branch() as trial:
        assert repr(trial) == f"<TemporaryStore {shop.url}: stock>"
    named = shop.snapshot("monday")
    assert repr(named).startswith(f"<Snapshot 'monday' at commit {named.commit}, taken 20")
    assert "of some tables" in repr(shop.snapshot("part", tables=["stock"]))
    idea = shop.branch("idea-2")
    assert repr(idea) == f"<Store {shop.url}, branch idea-2: stock>"
    idea.close()
    assert repr(idea) == "<Store: this handle of a branch is closed>"


def test_a_copy_says_where_it_is(shop: sl.Store, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/c.db#few"
    copy = shop.view("stock").replicate(target)
    assert repr(copy) == f"<Copy few at {target}>"
    copy.drop()
    assert repr(copy) == "<Copy few: there is no copy 'few'>"


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_values_as_text(shop: sl.Store, kind: str) -> None:
    shown = things(shop)[kind]._repr_html_()
    assert "<script" not in shown
    assert "<table>" in shown
    assert ("&lt;script&gt;" in shown) == (kind in ("Table", "WhatIf", "Changes"))


def test_a_notebook_shows_the_first_rows_and_counts_the_others(shop: sl.Store) -> None:
    shop.create_table("many", pa.table({"id": range(25)}), key="id")
    shown = shop.table("many")._repr_html_()
    assert "<td>9</td>" in shown
    assert "<td>10</td>" not in shown
    assert "and 15 more rows" in shown


def test_what_cant_be_read_shows_itself_too(shop: sl.Store) -> None:
    gone = shop.table("gone")
    assert repr(gone) == "<Table gone: there is no table gone>"
    assert "there is no table gone" in gone._repr_html_()
    with shop.snapshot() as now:
        pass
    assert repr(now) == "<Snapshot, closed>"
    assert "closed" in now._repr_html_()
    with shop.branch() as idea:
        assert "<td>name</td>" in idea.table("stock")._repr_html_()
    what_if = shop.what_if("idea")
    what_if.drop()
    assert "idea" in what_if._repr_html_()


def test_changes_write_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = pa.table({"id": [1, 2], "v": [1, 2]}), pa.table({"id": [2, 3], "v": [3, 4]})
    changes = sl.diff(old, new, key="id", runner="inline")
    page = changes.to_html(tmp_path / "page.html", limit=1)
    assert (tmp_path / "page.html").read_text("utf-8") == page
    assert "How this was found out" in page
    changes.write(tmp_path / "x.csv", layout="right")
    assert (tmp_path / "x.csv").read_text() == '"id","_change","v"\n2,"update",3\n3,"insert",4\n'
    changes.write("-", format="jsonl", layout="sparse")
    assert capsys.readouterr().out.splitlines()[1].startswith('{"id": 2, "_change": "update", "_changed": ["v"]')
    assert "How this was found out" not in changes.invert().to_html()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        changes.write("-", layout="right")
        with pytest.raises(InputError, match="takes text alone"):
            changes.write("-", format="parquet")
    assert out.getvalue().startswith('"id","_change","v"')

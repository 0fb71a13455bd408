"""Finding rows on a page by key and by what their keys begin with, whatever the key is made of."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests.tables.properties import given

from strandline.tables.changes import _rows, _touched
from strandline.tables.keys import encode_key, encode_keys, sort_order
from strandline.tables.page import PageContents, base_of, overlay_of
from strandline.tables.schema import DELETED, ROW, TableSchema, new_table_schema

FEW = st.integers(-2, 5)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): FEW,
    pa.int32(): FEW,
    pa.date32(): FEW.map(lambda n: dt.date(2000, 1, 10) + dt.timedelta(days=n)),
    pa.decimal128(9, 2): FEW.map(lambda n: Decimal(n) / 4),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "ab", "b\0", "ä"]),
}
VALUES = st.one_of(st.none(), st.sampled_from([0.0, float("nan"), 1.5]))


@dataclass(frozen=True)
class Page:
    """A base page's rows, and overlays over it: row numbers with a value, or None for rows that they delete."""

    schema: TableSchema
    rows: pa.Table
    overlays: tuple[pa.Table | None, ...]

    def contents(self, number: int) -> PageContents:
        overlay = self.overlays[number]
        return PageContents(
            base_of(self.rows, self.schema), None if overlay is None else overlay_of(overlay, self.schema)
        )


@st.composite
def pages(draw: st.DrawFn) -> Page:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    names = [f"k{place}" for place in range(len(kinds))]
    schema = new_table_schema(pa.schema([*zip(names, kinds, strict=True), ("v", pa.float64())]), names)
    keys = draw(st.lists(st.tuples(*(KINDS[kind] for kind in kinds)), unique=True, max_size=8))
    cut = draw(st.integers(0, len(keys)))
    images = [dict(zip(names, key, strict=True), _row=10 + row) for row, key in enumerate(keys)]
    base = pa.Table.from_pylist([{**one, "v": draw(VALUES)} for one in images[:cut]], schema=schema.row_schema)
    order = sort_order(base, schema.order)
    base = base if order is None else base.take(pa.array(order))
    overlays = tuple(draw(st.none() | overlay(schema, images)) for _ in range(2))
    return Page(schema, base, overlays)


@st.composite
def overlay(draw: st.DrawFn, schema: TableSchema, images: list[dict[str, Any]]) -> pa.Table:
    chosen = draw(st.lists(st.sampled_from(images), unique_by=lambda one: one["_row"])) if images else []
    rows = [
        {"_row": one["_row"], DELETED: True} if draw(st.booleans()) else {**one, "v": draw(VALUES), DELETED: False}
        for one in chosen
    ]
    return pa.Table.from_pylist(rows, schema=schema.row_schema.append(pa.field(DELETED, pa.bool_())))


def listed(rows: pa.Table) -> list[str]:
    return sorted(repr(row) for row in rows.to_pylist())


@given(pages(), st.data())
def test_rows_are_found_by_their_keys_and_by_what_these_begin_with(page: Page, data: st.DataObject) -> None:
    contents, key = page.contents(0), page.schema.key
    whole = contents.table
    for number, one in enumerate(encode_keys(page.rows, key)):
        assert contents.base.find(one) == number
    kinds = [page.schema.arrow_schema.field(name).type for name in key]
    wanted = data.draw(st.lists(KINDS[kinds[0]], unique=True))
    prefixes = sorted(encode_key([value], (*kinds, pa.null())) for value in wanted)
    found = contents.beginning_with(prefixes)
    if found is None:
        assert pa.string() in kinds
    else:
        chosen = pa.array([row[key[0]] in wanted for row in whole.to_pylist()], pa.bool_())
        assert listed(found) == listed(whole.filter(chosen))


@given(pages(), st.data())
def test_of_two_overlays_only_rows_that_differ_come_out_and_all_of_them(page: Page, data: st.DataObject) -> None:
    old, new = page.contents(0), page.contents(1)
    names = [ROW, *sorted(data.draw(st.sets(st.sampled_from(page.schema.names))))]
    touched = _touched(old, new, {*names, DELETED})
    sides = [listed(_rows(side, touched, names)) for side in (old, new)]
    all_rows = [listed(side.table.select(names)) for side in (old, new)]
    assert [row for row in all_rows[0] if row not in all_rows[1]] == [row for row in sides[0] if row not in sides[1]]
    assert [row for row in all_rows[1] if row not in all_rows[0]] == [row for row in sides[1] if row not in sides[0]]
    assert len(np.unique(touched)) == len(touched)
    overlaid = {int(row) for side in (old, new) if side.overlay is not None for row in side.overlay.rows}
    assert set(touched.tolist()) <= overlaid

"""Layouts of a change set, against a model in plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.report.samples import MIXED, changed_paths, counted, empty, mixed_rows, mixed_table, orders
from tests.values.properties import for_all

from strandline.changes.shape import BEFORE, CHANGED, ChangeSet
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, InputError, NoBeforeImages
from strandline.report.layouts import (
    LAYOUTS,
    column_by_column,
    column_by_column_schema,
    lay_out,
    left,
    right,
    side_by_side,
    sparse,
)
from strandline.report.paths import same
from strandline.report.values import python_values

VALUES = MIXED.names[1:]


def without(changes: ChangeSet, *columns: str) -> ChangeSet:
    """The same changes as an algorithm gives them that has no before images, or does not know what changed."""
    header = replace(changes.header, has_before=BEFORE not in columns, has_changed=CHANGED not in columns)
    return ChangeSet(header, changes.rows.drop_columns(list(columns)))


def by_key(table: pa.Table) -> dict[Any, dict[str, Any]]:
    columns = {name: python_values(table.column(name)) for name in table.column_names}
    return {key: {name: values[row] for name, values in columns.items()} for row, key in enumerate(columns["k"])}


def expected_cells(old: pa.Table, new: pa.Table) -> list[tuple[Any, str, str]]:
    before, after = by_key(old), by_key(new)
    cells = []
    for key in {*before, *after}:
        if key not in before or key not in after:
            cells += [(key, "insert" if key in after else "delete", name) for name in VALUES]
            continue
        for name in VALUES:
            cells += [(key, "update", path) for path in changed_paths(before[key][name], after[key][name], name)]
    return sorted(cells)


@for_all(15, old=mixed_rows(), new=mixed_rows())
def test_column_by_column_lists_exactly_the_cells_that_differ(old: Any, new: Any) -> None:
    old, new = mixed_table(old), mixed_table(new)
    laid = column_by_column(difference(old, new, ["k"]))
    found = zip(*(laid.column(name).to_pylist() for name in ("k", "_change", "_column")), strict=True)
    assert sorted(found) == expected_cells(old, new)


@for_all(15, old=mixed_rows(), new=mixed_rows())
def test_images_compared_by_value_tell_the_same_as_the_names_of_changed_columns(old: Any, new: Any) -> None:
    changes = difference(mixed_table(old), mixed_table(new), ["k"])
    assert column_by_column(without(changes, CHANGED)).equals(column_by_column(changes))
    with_names, without_names = sparse(changes), sparse(without(changes, CHANGED))
    assert without_names.schema.equals(with_names.schema)
    assert same(without_names.to_pylist(), with_names.to_pylist())


@for_all(15, old=mixed_rows(), new=mixed_rows())
def test_left_and_right_are_the_rows_of_the_two_sides(old: Any, new: Any) -> None:
    old, new = mixed_table(old), mixed_table(new)
    changes = difference(old, new, ["k"])
    for laid, side in ((left(changes), old), (right(changes), new)):
        rows = by_key(laid)
        kept = {key: row for key, row in by_key(side).items() if key in rows}
        assert {key: {name: row[name] for name in MIXED.names} for key, row in rows.items()}.keys() == kept.keys()
        assert all(changed_paths(row[name], rows[key][name]) == [] for key, row in kept.items() for name in VALUES)


@for_all(15, old=mixed_rows(), new=mixed_rows())
def test_sparse_hides_exactly_the_cells_of_updates_that_are_the_same(old: Any, new: Any) -> None:
    changes = difference(mixed_table(old), mixed_table(new), ["k"])
    full, thin = by_key(side_by_side(changes)), by_key(sparse(changes))
    for key, row in thin.items():
        for name in VALUES:
            hidden = row["_change"] == "update" and name not in row["_changed"]
            for image in (f"{name}_before", f"{name}_after"):
                assert (row[image] is None) if hidden else changed_paths(row[image], full[key][image]) == []


def test_column_by_column_tells_cells_before_and_after() -> None:
    rows = [tuple(row.values()) for row in column_by_column(orders()).to_pylist() if row["_change"] == "update"]
    assert rows == [
        (2, "update", "qty", "4", "40"),
        (3, "update", "address.zip", "150", "151"),
        (3, "update", "tags['b']", "2", "3"),
        (4, "update", "customer", "customer 4", None),
        (4, "update", "price", "9.50", "9.51"),
    ]


def test_inserts_and_deletes_list_every_value_column() -> None:
    rows = column_by_column(orders()).to_pylist()
    assert [row["_column"] for row in rows if row["id"] == 6] == ["customer", "qty", "price", "address", "tags", "seen"]
    gone = [(row["_before"], row["_after"]) for row in rows if row["id"] == 1]
    assert gone[3:] == [
        ('{"city": "Oslo", "zip": 150}', None),
        ('{"a": 1, "b": 2}', None),
        ("2026-03-01 12:00:00+00:00", None),
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sample", [orders, empty, counted])
def test_a_layout_has_one_schema_however_the_set_is_cut(layout: str, sample: Any) -> None:
    changes = sample()
    whole = pa.concat_tables(lay_out(changes.header, [changes.rows], layout))
    pieces = [changes.rows.slice(start, 1) for start in range(len(changes.rows))] or [changes.rows]
    assert pa.concat_tables(lay_out(changes.header, pieces, layout)).equals(whole)


def test_a_table_of_keys_alone_lists_each_change_once() -> None:
    changes = difference(pa.table({"k": [1, 2]}), pa.table({"k": [2, 3]}), ["k"])
    assert [tuple(row.values()) for row in column_by_column(changes).to_pylist()] == [
        (1, "delete", None, None, None),
        (3, "insert", None, None, None),
    ]
    assert side_by_side(changes).column_names == ["k", "_change"]


def test_without_before_images_only_what_is_known_is_laid_out() -> None:
    changes = without(orders(), BEFORE)
    laid = column_by_column(changes)
    assert laid.column_names == ["id", "_change", "_column", "_after"] == column_by_column_schema(changes.header).names
    assert [row["_column"] for row in laid.to_pylist() if row["_change"] != "insert"] == [
        None, "qty", "address", "tags", "customer", "price",
    ]  # fmt: skip
    assert "qty_before" not in sparse(changes).column_names
    assert len(right(changes)) == 5
    for refused in (left, side_by_side):
        with pytest.raises(NoBeforeImages, match="before images"):
            refused(changes)


def test_a_set_that_knows_neither_image_nor_names_is_refused_by_layouts_of_cells() -> None:
    changes = without(orders(), BEFORE, CHANGED)
    for refused in (column_by_column, sparse):
        with pytest.raises(ChangesError, match="before images"):
            refused(changes)


def test_names_of_the_layout_give_way_to_names_of_the_table() -> None:
    old = pa.table({"_column": [1], "a": [1], "a_before": [1]})
    changes = difference(old, pa.table({"_column": [1], "a": [2], "a_before": [1]}), ["_column"])
    assert column_by_column(changes).column_names == ["_column", "_change", "_column_", "_before", "_after"]
    assert side_by_side(changes).column_names[2:4] == ["a_before_", "a_after"]


def test_counted_sets_keep_their_counts_in_every_layout() -> None:
    changes = counted()
    for layout in LAYOUTS:
        (laid,) = lay_out(changes.header, [changes.rows], layout)
        kept = {"left": [-2], "right": [1, 3]}.get(layout, [-2, 1, 3])
        assert sorted(laid.column("_count").to_pylist()) == kept
    with pytest.raises(ChangesError, match="counted"):
        column_by_column(changes)


def test_an_unknown_layout_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="side-by-side"):
        lay_out(orders().header, [], "sideways")

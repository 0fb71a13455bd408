"""The laws of the change set, against the plain-Python model, on tables of all types."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests import model
from tests.examples import LAWS
from tests.model import counted_of, keyed_of, relation_of, rows_of
from tests.random_tables import Case, bags, cases

from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.consolidate import consolidate
from strandline.changes.conversion import to_counted, to_keyed
from strandline.changes.invert import invert
from strandline.changes.project import project
from strandline.changes.restrict import restrict
from strandline.changes.table_difference import difference


def bag(table: pa.Table, case: Case) -> Counter[tuple[Any, ...]]:
    return model.bag_of(table, case.names)


@LAWS
@given(cases())
def test_a_difference_is_what_the_model_says(case: Case) -> None:
    old, new = case.states
    changes = difference(old, new, case.key)
    expected = model.difference(relation_of(old, case.key), relation_of(new, case.key))
    assert keyed_of(changes) == expected
    counts = changes.header.counts
    kinds = Counter(change.kind for change in expected.values())
    assert (counts.inserted, counts.updated, counts.deleted) == (kinds["insert"], kinds["update"], kinds["delete"])
    assert counts.unchanged == len(old) - counts.updated - counts.deleted
    names = Counter(name for change in expected.values() for name in change.changed or ())
    assert {name: count for name, count in (counts.columns or {}).items() if count} == dict(names)


@LAWS
@given(cases())
def test_applying_a_difference_gives_the_new_table(case: Case) -> None:
    old, new = case.states
    result = apply(old, difference(old, new, case.key))
    assert relation_of(result, case.key) == relation_of(new, case.key)
    assert result.schema == new.schema
    result.validate(full=True)


@LAWS
@given(cases())
def test_applying_keeps_survivors_in_place_and_puts_inserts_at_the_end(case: Case) -> None:
    old, new = case.states
    keys = [model.key_of(row, case.key) for row in rows_of(apply(old, difference(old, new, case.key)))]
    before = [model.key_of(row, case.key) for row in rows_of(old)]
    after = [model.key_of(row, case.key) for row in rows_of(new)]
    assert keys == [key for key in before if key in after] + [key for key in after if key not in before]


@LAWS
@given(cases())
def test_applying_an_inverse_gives_the_old_table_back(case: Case) -> None:
    old, new = case.states
    changes = difference(old, new, case.key)
    inverse = invert(changes)
    assert keyed_of(inverse) == model.invert(keyed_of(changes))
    assert relation_of(apply(new, inverse), case.key) == relation_of(old, case.key)
    assert keyed_of(invert(inverse)) == keyed_of(changes)


@LAWS
@given(cases(states=3))
def test_applying_a_composition_is_applying_both(case: Case) -> None:
    a, b, c = case.states
    first, then = difference(a, b, case.key), difference(b, c, case.key)
    both = compose(first, then)
    assert keyed_of(both) == model.compose(keyed_of(first), keyed_of(then)) == keyed_of(difference(a, c, case.key))
    assert relation_of(apply(a, both), case.key) == relation_of(apply(apply(a, first), then), case.key)


@LAWS
@given(cases(states=4, most_values=1))
def test_compose_is_associative(case: Case) -> None:
    a, b, c, d = case.states
    one, two, three = (difference(x, y, case.key) for x, y in ((a, b), (b, c), (c, d)))
    assert keyed_of(compose(compose(one, two), three)) == keyed_of(compose(one, compose(two, three)))


@LAWS
@given(cases(states=3))
def test_consolidate_is_idempotent_and_nets_a_sequence(case: Case) -> None:
    a, b, c = case.states
    first, then = difference(a, b, case.key), difference(b, c, case.key)
    raw = type(first)(first.header, pa.concat_tables([first.rows, then.rows]))
    once = consolidate(raw)
    assert keyed_of(once) == model.compose(keyed_of(first), keyed_of(then))
    assert keyed_of(consolidate(once)) == keyed_of(once)
    assert consolidate(once).header == once.header


@LAWS
@given(cases())
def test_a_bag_of_deletes_and_inserts_nets_to_the_difference(case: Case) -> None:
    """What a differential without order emits: all inserts first, then the deletes."""
    old, new = case.states
    nothing = old.slice(0, 0)
    deletes, inserts = difference(old, nothing, case.key), difference(nothing, new, case.key)
    raw = type(deletes)(deletes.header, pa.concat_tables([inserts.rows, deletes.rows]))
    assert keyed_of(consolidate(raw, ordered=False)) == keyed_of(difference(old, new, case.key))


@LAWS
@given(cases())
def test_a_table_does_not_differ_from_itself_in_any_order(case: Case) -> None:
    table = case.states[0]
    again = pa.concat_tables([table.slice(len(table) // 2), table.slice(0, len(table) // 2)])
    assert len(difference(table, again, case.key)) == 0
    assert len(difference(table, again)) == 0


@LAWS
@given(case=cases(), data=st.data())
def test_restricting_is_the_difference_of_the_restricted_tables(case: Case, data: st.DataObject) -> None:
    old, new = case.states
    name = data.draw(st.sampled_from(case.names))
    seen = [row[name] for row in rows_of(old) + rows_of(new)]
    wanted = data.draw(st.lists(st.sampled_from(seen))) if seen else []
    condition = model.Satisfies([name], lambda row: row[name] in wanted)
    changes = difference(old, new, case.key)
    result = restrict(changes, condition)
    assert keyed_of(result) == model.restrict(keyed_of(changes), condition.predicate)
    counted = restrict(difference(old, new), condition)
    expected = model.restrict(keyed_of(changes), condition.predicate)
    assert counted_of(counted, case.names) == model.to_counted(expected, case.names)


@LAWS
@given(case=cases(), data=st.data())
def test_projecting_is_the_difference_of_the_projected_tables(case: Case, data: st.DataObject) -> None:
    old, new = case.states
    changes = difference(old, new, case.key)
    values = [name for name in case.names if name not in case.key]
    chosen = [*case.key, *(name for name in values if data.draw(st.booleans()))]
    result = project(changes, chosen)
    assert keyed_of(result) == model.project(keyed_of(changes), chosen)
    assert keyed_of(result) == keyed_of(difference(plainly(old, chosen), plainly(new, chosen), case.key))
    lost = [name for name in case.names if name != case.key[0]]
    if lost:
        counted = project(changes, lost)
        expected = model.counted_difference(model.bag_of(old, lost), model.bag_of(new, lost))
        assert counted_of(counted, lost) == expected == counted_of(project(difference(old, new), lost), lost)


def plainly(table: pa.Table, columns: list[str]) -> pa.Table:
    return table.select(columns)


@LAWS
@given(cases())
def test_converting_to_counts_and_back_loses_nothing(case: Case) -> None:
    old, new = case.states
    changes = difference(old, new, case.key)
    counted = to_counted(changes)
    assert counted_of(counted, case.names) == model.to_counted(keyed_of(changes), case.names)
    assert counted_of(counted, case.names) == counted_of(difference(old, new), case.names)
    assert keyed_of(to_keyed(counted, case.key)) == keyed_of(changes)


@LAWS
@given(bags())
def test_a_counted_difference_is_what_the_model_says_and_applies(case: Case) -> None:
    old, new = case.states
    changes = difference(old, new)
    assert counted_of(changes) == model.counted_difference(bag(old, case), bag(new, case))
    result = apply(old, changes)
    assert bag(result, case) == bag(new, case)
    assert result.schema == new.schema
    counts = changes.header.counts
    assert counts.unchanged == len(old) - counts.deleted == len(new) - counts.inserted
    assert bag(apply(new, invert(changes)), case) == bag(old, case)


@LAWS
@given(bags(states=3))
def test_counted_sets_compose(case: Case) -> None:
    a, b, c = case.states
    first, then = difference(a, b), difference(b, c)
    both = compose(first, then)
    assert counted_of(both) == model.counted_compose(counted_of(first), counted_of(then))
    assert bag(apply(a, both), case) == bag(c, case)
    assert counted_of(consolidate(both)) == counted_of(both)
    raw = type(first)(first.header, pa.concat_tables([first.rows, then.rows]))
    assert counted_of(consolidate(raw)) == counted_of(both)


WIDTHS: list[list[tuple[pa.DataType, list[Any]]]] = [
    [(pa.int8(), [1, -1]), (pa.int64(), [1, 2**62]), (pa.decimal128(22, 2), [Decimal(1), Decimal("0.01")])],
    [(pa.decimal128(3, 1), [Decimal("1.5")]), (pa.decimal128(5, 2), [Decimal("1.5"), Decimal("1.55")])],
    [(pa.timestamp("s"), [0]), (pa.timestamp("us"), [0, 1]), (pa.timestamp("ns"), [0, 1])],
    [(pa.int64(), [1]), (pa.float64(), [1.0, 5.5])],
]


@LAWS
@given(st.data(), st.sampled_from(WIDTHS), st.sampled_from([["id"], None]))
def test_sets_compose_whatever_types_stand_between(data: st.DataObject, widths: Any, key: list[str] | None) -> None:
    states = []
    for _ in range(3):
        type_, values = data.draw(st.sampled_from(widths))
        held = data.draw(st.dictionaries(st.integers(1, 3), st.sampled_from(values)))
        states.append(pa.table({"id": pa.array(held, pa.int64()), "v": pa.array(list(held.values()), type_)}))
    first, then = difference(states[0], states[1], key), difference(states[1], states[2], key)
    assert sorted(map(str, apply(states[0], compose(first, then)).to_pylist())) == sorted(
        map(str, states[2].to_pylist())
    )

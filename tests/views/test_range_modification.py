"""Updates as statements: they fit only where they move nothing and mean the same, and then they do the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.conftest import Place, place_of
from tests.replication.senders import load
from tests.replication.servers import postgres

from strandline.errors import SchemaError, SqlError
from strandline.replication.definition import CopyDefinition
from strandline.replication.targets.target import open_target
from strandline.tables.predicates import TableExpression
from strandline.tables.row_changes import UpdateStatement
from strandline.values.expressions import parse_condition
from strandline.views import ViewDefinition
from strandline.views.definition.definition import Shape
from strandline.views.definition.parse import define
from strandline.views.range_modifications.portable_expressions import NotPortable
from strandline.views.range_modifications.range_modification import (
    Images,
    RangeModification,
    RangeStatement,
    range_modification,
    range_statements,
)

__all__ = ["postgres"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("s", pa.int16()),
        ("w", pa.uint64()),
        ("q", pa.decimal128(12, 2)),
        ("f", pa.float64()),
        ("g", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
    ]
)
D = dt.date
ROWS = pa.Table.from_pylist(
    [
        dict(zip(SCHEMA.names, row, strict=True))
        for row in [
            (1, 7, 2, 5, Decimal("1.10"), 0.1, 1.0, "a", True, D(2030, 1, 1)),
            (2, -7, -2, 2**64 - 1, Decimal("-3.33"), float("nan"), 2.0, "B", False, D(1999, 12, 31)),
            (3, None, None, None, None, None, None, None, None, None),
            (4, 2**30, 32_000, 0, Decimal("99999.99"), 1e308, 4.5, "it's é", True, D(2030, 2, 28)),
            (5, 0, 0, 1, Decimal("0.00"), float("inf"), -0.0, "", None, D(1970, 1, 1)),
        ]
    ],
    schema=SCHEMA,
)
ITEMS = {"items": Shape(SCHEMA, ("id",))}
SCHEMAS = {"items": SCHEMA}
ALL = define("v", "select * from items", ITEMS)


@dataclass(frozen=True)
class Decision:
    """The statements to send, one after the other (none: the copy is not touched), or why rows must be sent."""

    updates: tuple[RangeStatement, ...] = ()
    obstacle: str = ""

    @property
    def fits(self) -> bool:
        return not self.obstacle


def decide(
    view: ViewDefinition, schemas: dict[str, pa.Schema], change: RangeModification, kind: str, **more: Any
) -> Decision:
    try:
        return Decision(range_statements(view, schemas, change, kind, **more))
    except NotPortable as obstacle:
        return Decision(obstacle=str(obstacle))


def modification(
    table: str, schema: pa.Schema, set: dict[str, str], where: str | None = None, params: dict[str, Any] | None = None
) -> RangeModification:
    return range_modification(UpdateStatement(table, set, where, params or {}), schema)


def decided(
    kind: str, set: dict[str, str], where: str | None = None, view: ViewDefinition = ALL, **more: Any
) -> Decision:
    return decide(view, SCHEMAS, modification("items", SCHEMA, set, where), kind, **more)


def row_wise(set: dict[str, str], where: str | None) -> pa.Table:
    """The update as a table of the store computes it."""
    chosen = pa.array([True] * len(ROWS)) if where is None else parse_condition(where, SCHEMA).mask(ROWS)
    result = ROWS
    for name, text in set.items():
        place = SCHEMA.get_field_index(name)
        new = TableExpression(text, SCHEMA).values(ROWS.filter(chosen), SCHEMA.field(name)).to_pylist()
        values = [
            new.pop(0) if yes else old
            for yes, old in zip(chosen.to_pylist(), ROWS.column(name).to_pylist(), strict=True)
        ]
        result = result.set_column(place, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
    return result


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    from tests.replication.servers import Postgres, _server

    server = Postgres(str(_server().get_uri()), "range_modifications")
    Postgres(server.url, "public").run("CREATE SCHEMA range_modifications")
    folder: Path = tmp_path_factory.mktemp("copies")
    found = {kind: place_of(kind, folder, server) for kind in ("duckdb", "sqlite", "postgres")}
    for place in found.values():
        with open_target(place.url) as copy:
            copy.create(CopyDefinition(SCHEMA, "keyed", ("id",), "items"))
    yield found
    Postgres(server.url, "public").run("DROP SCHEMA range_modifications CASCADE")


def executed(place: Place, decision: Decision) -> pa.Table:
    """What a copy holds after it ran the statements."""
    with open_target(place.url) as copy:
        load(copy, ROWS)
    for update in decision.updates:
        place.run(update.sql('"my copy"'))
    with open_target(place.url) as copy:
        return pa.Table.from_batches(copy.rows()).sort_by("id")


def same(one: pa.Table, other: pa.Table) -> bool:
    return shown(one) == shown(other)


def shown(rows: pa.Table) -> str:
    """With one zero: −0.0 and 0.0 are equal."""
    values = [value + 0.0 if isinstance(value, float) else value for row in rows.to_pylist() for value in row.values()]
    return str(values)


STATEMENTS: list[tuple[dict[str, str], str | None, set[str]]] = [
    ({"n": "n + 1"}, "id < 4", {"sqlite", "postgres"}),
    ({"n": "-n * 3 - s", "s": "s + 7"}, "s <> 2 or n is null", {"sqlite", "postgres"}),
    ({"n": "n % (3 - 5)"}, None, set()),
    ({"n": "n + (3 - 5)"}, None, set()),
    ({"n": "n * -3"}, "s between -5 and 5", {"sqlite", "postgres"}),
    ({"n": "7 / 2 * 2"}, "b", set()),
    ({"n": "n // 2"}, None, set()),
    ({"q": "q * 2 + 0.25"}, "q between 0 and 5000", {"postgres"}),
    ({"q": "n"}, "id = 1", {"postgres"}),
    ({"q": "q * 1.1"}, "id = 5", {"postgres"}),
    ({"t": "t || '-' || t"}, None, set()),
    ({"t": "'c'"}, "t = 'it''s é' or t in ('a', 'x')", {"sqlite", "postgres"}),
    ({"t": "upper(t)"}, None, set()),
    ({"t": "'x'"}, "t > 'A' and t < 'b'", set()),
    ({"b": "not b"}, None, {"sqlite", "postgres"}),
    ({"b": "n > 3 and t = 'a'"}, "not b", {"sqlite", "postgres"}),
    ({"d": "d + 30"}, "d >= DATE '2000-01-01'", {"postgres"}),
    ({"d": "NULL"}, "d is not null", {"sqlite", "postgres"}),
    ({"f": "g"}, "n > 0", set()),
    ({"f": "f + g"}, None, set()),
    ({"f": "f"}, "f > 1", set()),
    ({"n": "coalesce(n, 0) + case when b then 1 when not b then 2 else 3 end"}, "id <> 4", set()),
    ({"n": "n * 0"}, "id = 1", set()),
    ({"n": "n + 1000"}, "id = 1", {"sqlite", "postgres"}),
    ({"w": "w - 1"}, "w > 0", {"postgres"}),
    ({"n": "abs(n)"}, None, set()),
    ({"n": "CAST(t AS INTEGER)"}, "id > 9", set()),
    ({"n": "1"}, "n + 9223372036854775807 > 0", set()),
    ({"t": "g::varchar || t"}, "g::varchar <> '-0.0'", set()),
]


@pytest.mark.parametrize(("set_", "where", "kinds"), STATEMENTS)
def test_a_statement_is_allowed_only_where_it_means_the_same_and_then_does_the_same(
    places: dict[str, Place], set_: dict[str, str], where: str | None, kinds: set[str]
) -> None:
    fits = {kind for kind in ("sqlite", "postgres") if decided(kind, set_, where).fits}
    assert fits == kinds
    try:
        expected = row_wise(set_, where)
    except (SqlError, SchemaError):
        return  # the base refuses such an update, so it is never sent
    for kind in (*kinds, "duckdb"):
        decision = decided(kind, set_, where)
        assert decision.fits, decision.obstacle
        assert same(executed(places[kind], decision), expected), (kind, decision.updates)


@pytest.mark.parametrize(("sql", "kind"), [("7 / 2", "sqlite"), ("f * 2", "postgres"), ("q + 1", "sqlite")])
def test_an_obstacle_is_told_in_words(sql: str, kind: str) -> None:
    column = "f" if "f" in sql else "q"
    told = decided(kind, {column: sql})
    assert not told.fits
    assert "may mean something else in" in told.obstacle or "3.5" in told.obstacle


NUMBERS = st.recursive(
    st.sampled_from(["n", "s", "id", "q", "1", "3", "0", "2.5", "n % 4", "7 / 2", "w", "f"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("case when b then {} else {} end".format, inner, inner),
        st.builds("(-{})".format, inner),
    ),
    max_leaves=4,
)
CONDITIONS = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["<", "<=", "=", "<>", ">"]), NUMBERS),
        st.sampled_from(
            ["b", "t = 'a'", "t || 'x' <> 'ax'", "t < 'b'", "n is null", "s in (2, NULL)", "d > '2000-01-01'"]
        ),
    ),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=3,
)


@settings(max_examples=examples(25))
@given(st.sampled_from(["n", "s", "q", "f"]), NUMBERS, CONDITIONS)
def test_random_statements_that_fit_do_what_the_base_does(
    places: dict[str, Place], column: str, value: str, where: str
) -> None:
    try:
        expected = row_wise({column: value}, where)
    except (SqlError, SchemaError):
        return
    for kind, place in places.items():
        decision = decided(kind, {column: value}, where)
        if decision.fits:
            assert same(executed(place, decision), expected), (kind, decision.updates)


def test_an_update_of_the_condition_is_sent_as_rows_unless_it_is_seen_to_move_none() -> None:
    view = define("v", "select id, n, s from items where n > 0", ITEMS)
    told = decided("duckdb", {"n": "n + 1"}, view=view)
    assert told.obstacle == "it changes n, on which the view's condition depends"
    after = row_wise({"n": "n + 1"}, "id <> 5")
    stays = decided("duckdb", {"n": "n + 1"}, "id <> 5", view, images=Images(ROWS, after))
    assert [update.sql("c") for update in stays.updates] == ['UPDATE c SET "n" = "n" + 1 WHERE "id" <> 5']
    moved = decided("duckdb", {"n": "n + 1"}, view=view, images=Images(ROWS, row_wise({"n": "n + 1"}, None)))
    assert moved.obstacle.endswith("rows enter or leave the view")


def test_what_the_view_does_not_show_can_be_neither_read_nor_need_be_written() -> None:
    view = define("v", 'select id, n as "my n" from items', ITEMS)
    assert decided("duckdb", {"n": "n + s"}, view=view).obstacle == "it reads items.s, which the view does not show"
    assert decided("duckdb", {"n": "0"}, "s > 1", view).obstacle == "it reads items.s, which the view does not show"
    hidden = decided("sqlite", {"s": "s + n", "t": "upper(t)"}, "b", view)
    assert hidden.fits
    assert hidden.updates == (), "nothing that the view shows changes"
    renamed = decided("sqlite", {"n": "n + 1"}, "n < 5", view)
    assert renamed.updates[0].sql('"t"') == 'UPDATE "t" SET "my n" = "my n" + 1 WHERE "my n" < 5'


def test_counted_views_and_keys_take_rows() -> None:
    counted = define("v", "select n, s from items", ITEMS)
    assert decided("duckdb", {"n": "0"}, view=counted).obstacle.startswith("the view has no key")
    assert decided("duckdb", {"id": "id + 1"}).obstacle == "it changes id, which is in the view's key"


def test_computed_outputs_are_computed_from_the_new_values_in_the_columns_type() -> None:
    view = define("v", "select id, n, s, n * 2 as twice, n || '!' as loud from items", ITEMS)
    update = decided("duckdb", {"n": "s * 1.0"}, view=view).updates[0]
    assert dict(update.set) == {
        "n": '"s" * 1.0',
        "twice": '(CAST("s" * 1.0 AS INT)) * 2',
        "loud": "(CAST(\"s\" * 1.0 AS INT)) || '!'",
    }
    assert "may mean" in decided("postgres", {"n": "n + 1"}, view=view).obstacle
    exact = define("v", "select id, n, n * 2 as twice from items", ITEMS)
    twice = dict(decided("postgres", {"n": "n + 1"}, view=exact).updates[0].set)["twice"]
    assert twice == '(CAST("n" AS DECIMAL) + 1) * 2'


def test_in_a_self_join_each_occurrence_has_its_statement() -> None:
    pairs = define("v", "select a.id, a.n, b.id as other, b.n as more from items a join items b on a.s = b.s", ITEMS)
    updates = decided("sqlite", {"n": "n + 1"}, "n < 9", pairs).updates
    assert [update.sql("c") for update in updates] == [
        'UPDATE c SET "n" = "n" + 1 WHERE "n" < 9',
        'UPDATE c SET "more" = "more" + 1 WHERE "more" < 9',
    ]
    assert not decided("sqlite", {"s": "s + 1"}, view=pairs).fits


def test_parameters_are_literals() -> None:
    change = modification("items", SCHEMA, {"t": ":new"}, "t = :old", {"old": "x' --", "new": 'a"b'})
    update = decide(ALL, SCHEMAS, change, "sqlite").updates[0]
    assert update.sql("c") == "UPDATE c SET \"t\" = 'a\"b' WHERE \"t\" = 'x'' --'"


def test_instants_are_computed_nowhere_but_at_home() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("h", pa.int64())]
    )
    view = define("v", "select * from x", {"x": Shape(schema, ("id",))})
    change = modification("x", schema, {"h": "hour(at)"})
    assert "depends on a session's zone" in decide(view, {"x": schema}, change, "duckdb").obstacle

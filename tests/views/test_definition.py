"""What a text defines, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import NotFound, SchemaError, SqlError
from strandline.views.definition.definition import Shape
from strandline.views.definition.parse import define


def shape(key: tuple[str, ...] = (), **columns: pa.DataType) -> Shape:
    return Shape(pa.schema([pa.field(name, kind, name not in key) for name, kind in columns.items()]), key)


RELATIONS = {
    "orders": shape(("id",), id=pa.int64(), customer=pa.int64(), price=pa.decimal128(10, 2), at=pa.timestamp("us")),
    "customers": shape(("id",), id=pa.int64(), name=pa.string(), region=pa.string()),
    "lines": shape(("id", "line"), id=pa.int64(), line=pa.int32(), item=pa.string()),
    "events": shape((), what=pa.string(), how=pa.struct([("x", pa.int64())])),
    "Mixed Case": shape(("Id",), Id=pa.int64(), **{"a b": pa.float64()}),
}


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("select * from orders", ("id",)),
        ("select price, id from orders where price < 10", ("id",)),
        ("select price from orders", ()),
        ("select price from orders where id = 7", ()),
        ("select price, region from orders, customers where orders.id = 7 and customers.id = 3", ()),
        ("select o.id, c.name from orders o join customers c on o.customer = c.id", ("id",)),
        ("select o.price, c.id from orders o join customers c on o.customer = c.id", ()),
        ("select c.id from orders o join customers c on o.id = c.id", ("id",)),
        ("select o.id, c.id as other from orders o, customers c", ("id", "other")),
        ("select o.id from orders o, customers c where c.id = 5", ("id",)),
        ("select line from lines where id = 3", ("line",)),
        ("select l.line, o.price, id from lines l join orders o using (id)", ("line", "id")),
        ("select a.id, b.id as boss from orders a join orders b on a.customer = b.id", ("id",)),
        ("select id + 1 as next from orders", ()),
        ("select what from events", ()),
        ('select "Id" from "mixed case"', ("Id",)),
    ],
)
def test_the_key_of_the_result_is_found_through_equalities(sql: str, key: tuple[str, ...]) -> None:
    assert define("v", sql, RELATIONS).key == key


def test_using_and_natural_joins_become_one_conjunction_and_show_their_columns_once() -> None:
    natural = define("v", "select * from lines natural join customers where (region = 'n' and (name > 'a'))", RELATIONS)
    using = define(
        "v", "select * from lines inner join customers using (ID) where name > 'a' and region = 'n'", RELATIONS
    )
    assert natural.schema.names == ["id", "line", "item", "name", "region"]
    assert [term.sql() for term in natural.conjuncts()] == [
        '"lines"."id" = "customers"."id"',
        '"customers"."region" = \'n\'',
        '"customers"."name" > \'a\'',
    ]
    assert natural.fingerprint == using.fingerprint


def test_columns_are_qualified_in_the_relations_own_spelling() -> None:
    found = define("v", 'select M.ID, "a b" * 2 as twice from "Mixed Case" m where NOT "a b" > 1', RELATIONS)
    assert [output.expression.sql() for output in found.outputs] == ['"m"."Id"', '"m"."a b" * 2']
    assert found.condition is not None
    assert found.condition.sql() == 'NOT "m"."a b" > 1'
    assert found.columns_of("m") == ("Id", "a b")
    assert found.schema.field("twice").type == pa.float64()


def test_computed_columns_have_the_types_that_they_are_computed_in() -> None:
    found = define(
        "v",
        "select price * 2 as p, upper(item) as u, e.how.x as x, at + interval 1 day as t from orders, lines, events e",
        RELATIONS,
    )
    assert [str(field.type) for field in found.schema] == ["decimal128(18, 2)", "string", "int64", "timestamp[us]"]


def test_each_occurrence_of_a_self_join_stands_alone() -> None:
    found = define("v", "select a.id, b.price as p from orders a, orders b where a.id = b.customer", RELATIONS)
    assert [(one.alias, one.relation) for one in found.occurrences] == [("a", "orders"), ("b", "orders")]
    assert found.relations == ("orders",)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select first(price) as p from orders", "order of rows"),
        ("select mode(price) as p from orders", "order of rows"),
        ("select id, last_value(id) over (order by customer) as l from orders", "frame of peers"),
        ("select id, nth_value(id, 2) over (order by customer) as l from orders", "frame of peers"),
        (
            "select id, sum(id) over (order by customer rows between 1 preceding and current row exclude ties) as l "
            "from orders",
            "EXCLUDE",
        ),
        ("select product(price) as p from orders", "order of rows"),
        ("select id from orders order by id limit (select 3)", "inside LIMIT"),
        ("select customer, list(price) as l from orders group by customer", "without ORDER BY"),
        ("select customer, count(*) as n from orders group by rollup (customer)", "ROLLUP"),
        ("select id, sum(price::double) over (order by id) as n from orders", "floating point"),
        ("select id, row_number() over w as n from orders window w as (order by id)", "WINDOW"),
        ("select orders.id from orders full join customers using (id)", "say ON"),
        ("select orders.id from orders asof join customers on orders.id >= customers.id", "ASOF"),
        ("select id from orders semi join customers using (id)", "SEMI JOIN"),
        ("select id from orders limit 3", "LIMIT"),
        ("select distinct on (customer) id from orders", "DISTINCT ON"),
        ("select id from orders union all by name select id from customers", "BY NAME"),
        ("select id from orders where (id, customer) in (select id, id from customers)", "say EXISTS"),
        (
            "select id from orders o where exists (select 1 from customers c "
            "where exists (select 1 from customers d where d.id = o.customer))",
            "around the one around it",
        ),
        ("select id from orders where id > all (select id from customers)", "ANY or ALL"),
        ("select id from orders where id = (select max(id) from customers where id < orders.id limit 1)", "LIMIT"),
        ("select id from orders where exists (select random() as r from customers where random() < 1)", "random"),
        ("select id, random() as r from orders", "random"),
        ("select id, now() as n from orders", "in comparisons only"),
        ("select * exclude (price) from orders", "star with exceptions"),
        ("select id from orders using sample 10", "sample"),
    ],
)
def test_what_deltas_cannot_follow_is_refused_or_regenerated(sql: str, why: str) -> None:
    with pytest.raises(SqlError, match="defining view 'v'") as refused:
        define("v", sql, RELATIONS)
    assert why.lower() in str(refused.value).lower()
    assert "strict=False" in str(refused.value)
    found = define("v", sql, RELATIONS, strict=False)
    assert why.lower() in found.regenerated.lower()
    assert found.form == "counted"
    assert found.relations[0] == "orders"


BEHIND = {
    "pivot (sum(id) for customer in (1, 2))": "PIVOT",
    "unpivot (v for n in (id))": "PIVOT",
    "tablesample 50%": "sample",
    "using sample 5": "sample",
}


@pytest.mark.parametrize("clause", BEHIND)
@pytest.mark.parametrize(
    "item",
    ["orders", "(orders)", "(select * from orders)", "((from orders))", "w", "(orders join customers using (id))"],
)
@pytest.mark.parametrize("place", ["", "lines, ", "lines left join "])
def test_no_clause_behind_an_item_of_from_is_passed_over(item: str, clause: str, place: str) -> None:
    end = " on true" if place.endswith("join ") else ""
    sql = f"with w as (from orders) select 1 as one from {place}{item} {clause}{end}"
    if clause.startswith("using"):
        sql = f"with w as (from orders) select 1 as one from {place}{item}{end} {clause}"
    with pytest.raises(SqlError, match=rf"{BEHIND[clause]}.*strict=False"):
        define("v", sql, RELATIONS)
    assert BEHIND[clause] in define("v", sql, RELATIONS, strict=False).regenerated


@pytest.mark.parametrize(
    ("behind", "inside"),
    [
        ("(select id from orders) order by price limit 2", "select id from orders order by price limit 2"),
        ("((select id from lines)) order by line, 1 offset 1", "select id from lines order by line, 1 offset 1"),
        ("(select id from orders order by price) limit 2", "select id from orders order by price limit 2"),
        (
            "(select id from orders order by price) order by id limit 2",
            "select id from orders order by id, price limit 2",
        ),
        (
            "(select id from orders union select id from lines) order by 1 limit 2",
            "select id from orders union select id from lines order by 1 limit 2",
        ),
    ],
)
def test_what_stands_behind_parentheses_means_what_it_means_inside(behind: str, inside: str) -> None:
    """The definitions are equal, of the query by itself and inside others."""
    for text in ("{}", "select count(*) as n from ({}) z", "select id from orders where id in ({})"):
        forms = [define("v", text.format(one), RELATIONS) for one in (behind, inside)]
        assert forms[0].fingerprint == forms[1].fingerprint


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select id from orders; select id from lines", "several statements"),
        ("", "no statement"),
        ("delete from orders", "no query"),
        ("select from where", "not SQL"),
        ("select prize from orders", "Did you mean 'price'"),
        ("select o.prize from orders o", "o has id, customer"),
        ("select x.id from orders o", "no table or column 'x'"),
        ("select id from orders, customers", "orders.id and customers.id"),
        ("select orders.id, customers.id from orders, customers", "several columns 'id'"),
        ("select id as _count from orders", "use ourselves"),
        ("select id from orders, orders", "stands twice"),
        ("select what from events natural join orders", "shares no column"),
        ("select id from orders where id = :x", "parameter"),
        ("select * from read_csv('/etc/passwd')", "no table of the store"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_mistakes_are_mistakes_whether_or_not_deltas_are_wanted(sql: str, why: str, strict: bool) -> None:
    with pytest.raises(SqlError) as refused:
        define("v", sql, RELATIONS, strict=strict)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select id, price * 2 from orders", "has no name"),
        ("select id from orders where price", "not true or false"),
        ("select id, id + 1 as next, next * 2 as twice from orders", "no column 'next'"),
    ],
)
def test_what_only_duckdb_understands_is_computed_anew(sql: str, why: str) -> None:
    with pytest.raises(SqlError, match=r"strict=False") as refused:
        define("v", sql, RELATIONS)
    assert why in str(refused.value)
    assert why in define("v", sql, RELATIONS, strict=False).regenerated


def test_an_unknown_relation_is_named_with_those_that_there_are() -> None:
    with pytest.raises(NotFound, match=r"'ordrs'.*Did you mean 'orders'"):
        define("v", "select id from ordrs", RELATIONS)
    with pytest.raises(NotFound, match=r"'other\.orders'"):
        define("v", "select id from other.orders", RELATIONS)


def test_a_column_without_a_type_is_refused() -> None:
    with pytest.raises(SchemaError, match="has no type"):
        define("v", "select id, null as x from orders", RELATIONS)

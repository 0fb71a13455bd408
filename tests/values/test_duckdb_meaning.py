"""What is parsed and written again is to DuckDB what the user wrote: by DuckDB's own parser."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import SqlError
from strandline.values import parse_expression, parse_sql

CONNECTION = duckdb.connect()
ALIASES = dict(
    CONNECTION.execute(
        "SELECT DISTINCT function_name, alias_of FROM duckdb_functions() WHERE alias_of IS NOT NULL"
    ).fetchall()
)
SAME = (
    *("array_append", "array_prepend", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "current_catalog"),
    *("current_date", "current_localtimestamp", "generate_series", "get_current_time", "group_concat", "if"),
    *("listagg", "range", "session_user", "string_agg", "today", "apply", "array_cat", "array_concat", "list_concat"),
    "datetrunc",
)
"""What is written otherwise and means the same, or is refused."""


def meaning(expression: str) -> Any:
    """What DuckDB's parser makes of an expression; None where that is a mistake."""
    record = json.loads(CONNECTION.execute("SELECT json_serialize_sql(?)", [f"SELECT {expression}"]).fetchone()[0])  # type: ignore[index]
    return None if record["error"] else _plain(record["statements"][0]["node"]["select_list"])


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node.lower() if isinstance(node, str) else node
    left_out = ("query_location", "query_location_length", "alias", "qualified_name")
    plain = {key: _plain(value) for key, value in node.items() if key not in left_out}
    if plain.get("type_name") in ("text", "integer"):
        plain["type_name"] = {"text": "varchar", "integer": "int"}[plain["type_name"]]
    if "function_name" in plain:
        plain["function_name"] = ALIASES.get(plain["function_name"], plain["function_name"])
    return _positive(plain)


def _positive(node: dict[str, Any]) -> dict[str, Any]:
    """Without what NOT makes of an operator: x NOT IN (y) is NOT (x IN (y))."""
    kind = str(node.get("type", ""))
    if kind in ("operator_is_not_null", "compare_not_in", "compare_not_between"):
        inner = {**node, "type": {"operator_is_not_null": "operator_is_null"}.get(kind, kind.replace("_not", ""))}
        return {"class": "operator", "type": "operator_not", "children": [inner]}
    return node


def written(sql: str) -> str:
    (tree,) = parse_sql(sql, "testing")
    text: str = tree.sql(dialect="duckdb", identify=True)
    return text


def test_every_function_of_duckdb_stays_the_call_that_it_is() -> None:
    rows = CONNECTION.execute(
        "SELECT DISTINCT function_name, len(parameters) FROM duckdb_functions() WHERE schema_name = 'main' "
        "AND function_type IN ('scalar', 'aggregate', 'macro') AND regexp_full_match(function_name, '[a-z][a-z0-9_]*')"
    ).fetchall()
    tried = 0
    for name, count in rows:
        for arguments in ([f"c{place}" for place in range(count)], [f"'Ab{place}'" for place in range(count)]):
            sql = f"{name}({', '.join(arguments)})"
            if name not in SAME and meaning(sql) is not None:
                tried += 1
                assert meaning(written(sql)) == meaning(sql), sql
    assert tried > 1000


TYPED = (
    "DATE '2024-01-31'",
    "TIMESTAMP '2024-01-31 10:00'",
    "JSON '[1]'",
    "DECIMAL(5, 2) '1.5'",
    "INT '1'",
    "TIME '1:00'",
)
leaves = st.sampled_from(["a", "b", "1", "'x'", "NULL", "true", *TYPED])
TEMPLATES = (
    *(f"{{0}} {sign} {{1}}" for sign in ("+", "-", "*", "/", "//", "%", "||", "<", "<=", "=", "<>", "AND", "OR")),
    *("{0} NOT IN ({1})", "{0} IN ({1}, {2})", "{0} NOT BETWEEN {1} AND {2}", "{0} BETWEEN {1} AND {2}"),
    *("{0} IS NULL", "{0} IS NOT NULL", "NOT {0}", "({0})", "-{0}", "{0}::INT", "lower({0})", "mod({0}, {1})"),
    *("{0} LIKE {1}", "{0} IS DISTINCT FROM {1}", "CASE WHEN {0} THEN {1} ELSE {2} END", "coalesce({0}, {1})"),
    *(
        "{0}::VARCHAR",
        "{0}::DATE",
        "{0}[1]",
        "{0} AT TIME ZONE 'UTC'",
        "{0} COLLATE nocase",
        "{0} GLOB {1}",
        "{0} !~~ {1}",
    ),
    *("{0} & {1}", "{0} | {1}", "{0} << {1}", "{0} >> {1}", "{0} NOT LIKE {1}", "{0} ILIKE {1}"),
)


@settings(max_examples=examples(300))
@given(
    st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(TEMPLATES), inner, inner, inner).map(
            lambda drawn: drawn[0].format(*drawn[1:])
        ),
        max_leaves=5,
    )
)
def test_an_expression_is_grouped_as_duckdb_groups_it(sql: str) -> None:
    expected = meaning(sql)
    if expected is not None:
        assert meaning(written(sql)) == expected


ODD_TEMPLATES = (
    *("{0} IS UNKNOWN", "{0} IS NOT FALSE", "{0} ISNULL", "{0} NOTNULL", "{0}! + 1", "~{0}", "@{0}", "+{0}"),
    *(
        f"{{0}} {sign} {{1}}"
        for sign in ("^", "**", "<<", "&", "|", "<=>", "<->", "->", "->>", "==", "!=", "^@", "~", "!~")
    ),
    *("DATE '2020-03-29'::VARCHAR || {0}", "{0} LIKE {1} || {2}", "{0} COLLATE nocase = {1}", "{0} IN {1}"),
    *("INTERVAL '1 day' + {0}", "{0}::INT % {1}", "- {0} ^ {1}", "NOT {0} IS NULL || {1}", "if({0}, {1}, {2})"),
    *("ARRAY[{0}, {1}]", "- + {0}", "+{0} || {1}", "date_part(INTERVAL 1 DAY, {0})"),
)
FOREIGN_TEMPLATES = (
    *("{0} {1}", "{0} BETWEEN SYMMETRIC {1} AND {2}", "{0} RLIKE {1}", "{0} DIV {1}", "INTERVAL {0}", "DATE {0}"),
    *("abs {0}", "ROW {0}", "{0} IS NULL BETWEEN {1} AND {2}", "{0} LIKE {1} IN (2)", "{0}::INT[1]", "{0}.{1}"),
)
"""What other dialects know, or nobody does."""


@settings(max_examples=examples(300))
@given(
    st.recursive(
        leaves,
        lambda inner: st.tuples(
            st.sampled_from((*ODD_TEMPLATES, *TEMPLATES, *FOREIGN_TEMPLATES)), inner, inner, inner
        ).map(lambda drawn: drawn[0].format(*drawn[1:])),
        max_leaves=5,
    )
)
def test_what_sqlglot_reads_otherwise_is_read_as_duckdb_does_or_refused(sql: str) -> None:
    try:
        tree = parse_sql(sql, "reading")[0]
    except SqlError:
        return
    assert meaning(f"({sql})") is not None, "what is a mistake to DuckDB is one here"
    for columns in ("3 AS a, 2 AS b", "true AS a, NULL::BOOLEAN AS b", "'x' AS a, 'y' AS b", "[1] AS a, 1 AS b"):
        expected = computed(sql, columns)
        assert expected is None or computed(tree.sql(dialect="duckdb", identify=True), columns) == expected


def computed(expression: str, columns: str) -> str | None:
    """Its value over one row; None where DuckDB can't tell."""
    try:
        return repr(CONNECTION.execute(f"SELECT ({expression}) FROM (SELECT {columns})").fetchall())
    except duckdb.Error:
        return None


def test_few_texts_are_refused_for_being_read_otherwise() -> None:
    texts = [template.format("a", "b", "c") for template in (*ODD_TEMPLATES, *TEMPLATES)]
    refused = []
    for text in texts:
        try:
            parse_sql(text, "reading")
        except SqlError:
            refused.append(text)
    assert refused == ["a! + 1", "a <=> b"]
    parse_sql("SELECT a, v FROM t, UNNEST([1, 2]) AS z(v)", "reading")
    for text in (*texts, "list_sort(a, 'DESC')", "today()", "INTERVAL 1 DAY", "list_value(a, b)"):
        if text not in refused:
            parse_sql(f"SELECT {text} AS named FROM t", "reading")


@pytest.mark.parametrize(
    ("sql", "alike"),
    [
        ("TIMESTAMPTZ '2020-03-29 02:30:00+05'::DATE", "CAST(TIMESTAMPTZ '2020-03-28 21:30:00+00' AS DATE)"),
        ("0! IS NULL", "false"),
        ("NOT i IS UNKNOWN || t NOTNULL", "NOT ((i IS NULL) || t) IS NOT NULL"),
        ("b IS NOT FALSE || t", "(b IS NOT FALSE) || t"),
        ("i = :one AND b IS NOT FALSE || t = :both", "true"),
    ],
)
def test_texts_of_conditions_mean_what_they_mean_to_duckdb(sql: str, alike: str) -> None:
    table = pa.table({"i": [1], "b": [False], "t": ["x"]})
    params = {"one": 1, "both": "falsex"} if ":one" in sql else {}
    got = parse_expression(sql, table.schema, params).evaluate(table)
    assert got.to_pylist() == parse_expression(alike, table.schema).evaluate(table).to_pylist()


@pytest.mark.parametrize(
    "sql",
    ["'a' 'b'", "n BETWEEN SYMMETRIC 2 AND 1", "t RLIKE 'a'", "DATE {'x': 1}", "abs {'x': n}.x", "INTERVAL n::INT"],
)
def test_what_is_a_mistake_to_duckdb_is_one_here(sql: str) -> None:
    with pytest.raises(SqlError, match=r"is not DuckDB's SQL: syntax error at or near"):
        parse_expression(sql, pa.schema([("n", pa.int64()), ("t", pa.string())]))


def test_words_of_duckdbs_own_may_name_columns() -> None:
    table = pa.table({"at": [1, 2], "window": [2, 2]})
    assert parse_expression("at = window", table.schema).evaluate(table).to_pylist() == [False, True]


def test_a_plus_before_a_value_is_the_function_that_it_is_to_duckdb() -> None:
    table = pa.table({"a": pa.array([[1], None]), "t": ["x", "y"]})
    assert parse_expression("+a", table.schema).evaluate(table).to_pylist() == [[1], []]
    assert parse_expression("2 - +1", table.schema).sql == "2 - 1"
    with pytest.raises(SqlError, match="No function matches"):
        parse_expression("+t", table.schema)


def test_what_no_writing_keeps_is_refused_with_what_to_do() -> None:
    with pytest.raises(SqlError, match=r"another way than DuckDB reads it.*parentheses"):
        parse_expression("a <=> b", pa.schema([("a", pa.list_(pa.float32(), 3)), ("b", pa.list_(pa.float32(), 3))]))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("j->>'a.b'", "dotted"),
        ("j->>'x[1]'", "lit"),
        ("json_extract_string(j, 'c:d')", "colon"),
        ("j->>'$.a.b'", "inner"),
        ("(j->>'$..b')[1]", "inner"),
        ("date_diff(day, DATE '2024-01-01', DATE '2025-01-01')", 12),
        ("date_diff('day', DATE '2024-01-01', DATE '2025-01-01')", 366),
        ("date_trunc(day, DATE '2024-03-05')::DATE::VARCHAR", "2024-03-01"),
        ("jaro_winkler_similarity('MARTHA', 'marhta', 0.99)", 0.0),
        ("i NOT IN (0) < bo", True),
        ("regexp_extract('ABC', 'b', 0, 'i')", "B"),
        ("log10(1000)", 3.0),
        ("2 ** mod(7, 4)", 8.0),
        ("(TIMESTAMP '2024-03-05 10:00:00'::DATE)::VARCHAR", "2024-03-05"),
        ("TIMESTAMPTZ '2024-03-05 02:30:00+05'::DATE::VARCHAR", "2024-03-04"),
        ("typeof(DATE '2024-03-05'::TIMESTAMP)", "TIMESTAMP"),
        ("(JSON '[1, 2]'->0)::INT", 1),
        ("'ab' LIKE 'a' ^@ 'b' || '%'", False),
    ],
)
def test_expressions_give_what_duckdb_gives(sql: str, expected: Any) -> None:
    row = {
        "j": '{"a.b": "dotted", "a": {"b": "inner"}, "x[1]": "lit", "c:d": "colon"}',
        "day": "month",
        "i": 0,
        "bo": True,
    }
    table = pa.Table.from_pylist([row])
    cast = sql.replace("j->", "j::JSON->").replace("(j,", "(j::JSON,")
    assert parse_expression(cast, table.schema).evaluate(table).to_pylist() == [expected]


def test_several_statements_are_no_expression() -> None:
    with pytest.raises(SqlError, match="several statements"):
        parse_expression("1; 2", pa.schema([("a", pa.int64())]))


@pytest.mark.parametrize("sql", ["select count(*) as n from t", "select v.n from t join (values (1)) v(n) on true"])
def test_duckdbs_writing_is_read_without_the_forms_that_only_it_knows(sql: str) -> None:
    (tree,) = parse_sql(f"{sql} where t.n < date '2024-01-02'::timestamp", "reading")
    text = tree.sql(dialect="duckdb").upper()
    assert "COUNT_STAR" not in text
    assert "VALUESLIST" not in text

"""A change set as SQL: statements that bring a table of a database to the new state, by MERGE where there is one.

Deletes come first, then updates and inserts together, in batches with a VALUES list as their source. Running the
script twice is harmless: what is deleted stays deleted, and what is there is set again. Names are quoted and literals
escaped by sqlglot for the dialect.

Numbers and booleans are their own literals; everything else is a string literal that one CAST per column turns into
the column's type, so that nothing depends on how a database guesses the type of a VALUES list. Nested values,
durations and anything else that has no such literal are refused by name.

MySQL and SQLite have no MERGE: there it is DELETE, and INSERT with what it does about a key that is there, which needs
that key to be the table's primary key. These two convert literals to the column's type by themselves.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import DELETE, Header
from strandline.errors import ChangesError, InputError, SchemaError, SqlError
from strandline.report.layouts import of_kind, require_keyed
from strandline.report.values import Instant, TimeSpan, python_values, text
from strandline.values import is_plain_bytes, is_plain_text, load_sqlglot

if TYPE_CHECKING:
    from sqlglot import exp

DOING = "writing changes as SQL"
_FINEST = {name: (1_000, f"microseconds of {name}") for name in ("postgres", "spark", "mysql", "bigquery")}
_FINEST["tsql"] = (100, "tenths of microseconds of sqlserver")
"""How fine the times of a dialect are that has no nanoseconds."""
_NANOSECONDS = {"TIMESTAMPTZ": "TIMESTAMPTZ_NS", "TIME": "TIME_NS"}
"""DuckDB's types of nanoseconds, by those that would drop them."""
_UPSERTING = ("mysql", "sqlite")
"""Dialects without MERGE."""


def sql_type(name: str, type_: pa.DataType, dialect: str) -> exp.DataType:
    """The type of a column in SQL; a column that can't be written is a `SchemaError` that names it."""
    from sqlglot import exp

    kind = _kind(type_, dialect)
    if kind is None:
        raise SchemaError(
            f"column {name!r} is {type_}, which has no literal in {dialect or 'standard'} SQL",
            doing=DOING,
            hint="Leave the column out of the comparison, or write Parquet, CSV or JSON lines instead",
        )
    if isinstance(kind, exp.DataType):
        return kind
    return exp.DataType(this=kind)


def literal(value: Any, *, as_text: bool) -> exp.Expression:
    """One value of a VALUES list; `as_text` writes numbers as strings too."""
    from sqlglot import exp

    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, (int, float)) and not as_text:
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if math.copysign(1, value) < 0 else number
    return exp.Literal.string(value.hex() if isinstance(value, bytes) else _string(value))


def converted(column: exp.Expression, type_: pa.DataType, target: exp.DataType, dialect: str) -> exp.Expression:
    """A column of the VALUES list as the table's type."""
    from sqlglot import exp

    if not is_plain_bytes(type_):
        return exp.Cast(this=column, to=target)
    if dialect == "postgres":
        return exp.Anonymous(this="DECODE", expressions=[column, exp.Literal.string("hex")])
    if dialect == "snowflake":
        return exp.Anonymous(this="TO_BINARY", expressions=[column, exp.Literal.string("HEX")])
    if dialect == "bigquery":
        return exp.Anonymous(this="FROM_HEX", expressions=[column])
    if dialect == "tsql":
        return exp.Anonymous(this="CONVERT", expressions=[exp.var("VARBINARY(MAX)"), column, exp.Literal.number(2)])
    return exp.Anonymous(this="UNHEX", expressions=[column])


def needs_text(type_: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether a column's values must all be strings: exact decimals, and floats among which is a NaN or an infinity."""
    if pt.is_floating(type_):
        return any(value is not None and not math.isfinite(value) for value in values)
    return not (pt.is_integer(type_) or pt.is_boolean(type_))


def check_values(field: pa.Field, values: Sequence[Any], dialect: str) -> None:
    """Refuses values that the dialect would round or can't hold: nanoseconds, far dates, zero bytes in text."""
    name = field.name
    for value in values:
        if pt.is_temporal(field.type) and "since 1970" in text(value):
            raise InputError(f"column {name!r} holds a time beyond the year 9999: {text(value)}", doing=DOING)
        finest = _FINEST.get(dialect)
        if isinstance(value, (Instant, TimeSpan)) and finest and value.ns % finest[0]:
            raise InputError(
                f"column {name!r} holds {value}, finer than the {finest[1]}",
                doing=DOING,
                hint="Round the column to microseconds before comparing",
            )
        if dialect == "sqlite" and isinstance(value, int) and value >= 2**63:
            raise InputError(f"column {name!r} holds {value}, more than an integer of sqlite", doing=DOING)
        if dialect in (*_UPSERTING, "tsql") and isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"column {name!r} holds {value}, which {dialect} can't store", doing=DOING)
        if dialect in ("postgres", "sqlite") and isinstance(value, str) and "\0" in value:
            raise InputError(f"column {name!r} holds a zero byte in text, which {dialect} can't store", doing=DOING)


def _string(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat(" ")  # old zones are off by odd seconds that few parsers read
    return text(value)


def _kind(type_: pa.DataType, dialect: str) -> Any:
    from sqlglot import exp

    types = exp.DataType.Type
    simple = {
        pa.bool_(): types.BOOLEAN,
        pa.int8(): types.SMALLINT,
        pa.uint8(): types.SMALLINT,
        pa.int16(): types.SMALLINT,
        pa.uint16(): types.INT,
        pa.int32(): types.INT,
        pa.uint32(): types.BIGINT,
        pa.int64(): types.BIGINT,
        pa.float16(): types.FLOAT,
        pa.float32(): types.FLOAT,
        pa.float64(): types.DOUBLE,
        pa.string(): types.TEXT,
        pa.large_string(): types.TEXT,
        pa.date32(): types.DATE,
        pa.date64(): types.DATE,
    }
    if type_ in simple and not (dialect == "tsql" and is_plain_text(type_)):
        return simple[type_]
    if dialect == "bigquery" and (type_ == pa.uint64() or pt.is_decimal(type_)):
        return types.BIGDECIMAL if type_ == pa.uint64() or 0 <= type_.scale <= type_.precision <= 38 else None
    if dialect == "tsql" and is_plain_text(type_):
        return exp.DataType.build("NVARCHAR(MAX)", dialect="tsql")
    if type_ == pa.uint64():
        return _decimal(20, 0)
    if pt.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= 38:
        return _decimal(type_.precision, type_.scale)
    if pt.is_timestamp(type_):
        return _timestamp(type_, dialect)
    if pt.is_time(type_) and dialect != "spark":
        return types.TIME
    return types.VARBINARY if is_plain_bytes(type_) and dialect else None


def _timestamp(type_: pa.DataType, dialect: str) -> Any:
    from sqlglot import exp

    types = exp.DataType.Type
    if type_.tz is not None:
        return types.TIMESTAMPTZ
    if dialect == "duckdb" and type_.unit == "ns":
        return types.TIMESTAMP_NS
    if dialect in ("bigquery", "mysql"):
        return types.DATETIME
    if dialect == "tsql":
        return types.DATETIME2
    return types.TIMESTAMPNTZ if dialect in ("spark", "snowflake") else types.TIMESTAMP


def _decimal(precision: int, scale: int) -> exp.DataType:
    from sqlglot import exp

    size = [exp.DataTypeParam(this=exp.Literal.number(number)) for number in (precision, scale)]
    return exp.DataType(this=exp.DataType.Type.DECIMAL, expressions=size)


DIALECTS = ("standard", "duckdb", "postgres", "spark", "snowflake", "bigquery", "sqlserver", "mysql", "sqlite")
BATCH = 500
LINE = 1_000_000  # a row of the VALUES list stays on one line
_FOLDED = re.compile(r"[a-z_][a-z0-9_]*")


def sql_merge(header: Header, tables: Iterable[pa.Table], table_name: str, dialect: str = "standard") -> Iterator[str]:
    """The statements, each ending in a semicolon, that make the changes in the table of that name.

    Everything is checked before the first statement: counted sets, sets over a schema that drifted, types without
    literals and unknown dialects are refused. `tables` are the rows of the set; they are gone through twice, so they
    are kept at hand.
    """
    load_sqlglot()
    target = _target(table_name, _dialect(dialect))
    _check(header, _dialect(dialect))
    return _statements(header, list(tables), target, _dialect(dialect))


def _statements(header: Header, rows: Sequence[pa.Table], target: exp.Table, dialect: str) -> Iterator[str]:
    for part in rows:
        gone = part.select(header.key).filter(pa.array(of_kind(part, DELETE)))
        for batch in _batches(gone):
            if dialect in _UPSERTING:
                yield _sql(_plain_delete(target, batch, dialect), dialect)
            else:
                yield _sql(_merge(target, batch, header.key, dialect, deletes=True), dialect)
    for part in rows:
        kept = part.select(header.columns).filter(pa.array(~of_kind(part, DELETE)))
        for batch in _batches(kept):
            if dialect in _UPSERTING:
                yield _sql(_upsert(target, batch, header.key, dialect), dialect)
            else:
                yield _sql(_merge(target, batch, header.key, dialect, deletes=False), dialect)


def _plain_delete(target: exp.Table, batch: pa.Table, dialect: str) -> exp.Delete:
    """`DELETE FROM t WHERE "id" = 1 OR …`, where a key may be null."""
    from sqlglot import exp

    lines = []
    for values in zip(*_literals(batch, dialect), strict=True):
        tests = [
            exp.Is(this=exp.column(_name(name, dialect)), expression=exp.Null())
            if isinstance(value, exp.Null)
            else exp.EQ(this=exp.column(_name(name, dialect)), expression=value)
            for name, value in zip(batch.column_names, values, strict=True)
        ]
        lines.append(exp.and_(*tests))
    return exp.Delete(this=target.copy(), where=exp.Where(this=exp.or_(*lines)))


def _upsert(target: exp.Table, batch: pa.Table, key: Sequence[str], dialect: str) -> exp.Insert:
    """`INSERT … ON CONFLICT … DO UPDATE`, or in MySQL `ON DUPLICATE KEY UPDATE`."""
    from sqlglot import exp

    if any(batch.column(name).null_count for name in key):
        raise InputError(
            f"a key is null, which no primary key of {dialect} is",
            doing=DOING,
            hint="Write the script in another dialect, or leave such rows out",
        )
    names = [_name(name, dialect) for name in batch.column_names]
    values = [_name(name, dialect) for name in batch.column_names if name not in key]
    sets = [exp.EQ(this=exp.column(name), expression=_came(name, dialect)) for name in values or names[:1]]
    conflict = exp.OnConflict(
        duplicate=dialect == "mysql",
        conflict_keys=None if dialect == "mysql" else [_name(name, dialect) for name in key],
        action=exp.var("UPDATE" if dialect == "mysql" else "DO UPDATE"),
        expressions=sets,
    )
    rows = [exp.Tuple(expressions=list(line)) for line in zip(*_literals(batch, dialect), strict=True)]
    into = exp.Schema(this=target.copy(), expressions=names)
    return exp.Insert(this=into, expression=exp.Values(expressions=rows), conflict=conflict)


def _came(name: exp.Identifier, dialect: str) -> exp.Expression:
    """The value that came for a column."""
    from sqlglot import exp

    if dialect == "mysql":
        return exp.Anonymous(this="VALUES", expressions=[exp.column(name.copy())])
    return exp.column(name.copy(), table="excluded")


def _literals(batch: pa.Table, dialect: str) -> list[list[exp.Expression]]:
    """The values of each column as literals that the database converts itself."""
    from sqlglot import exp

    columns = []
    for place, field in enumerate(batch.schema):
        values = python_values(batch.column(place))
        check_values(field, values, dialect)
        as_text = needs_text(field.type, values)
        columns.append(
            [
                exp.HexString(this=value.hex()) if isinstance(value, bytes) else literal(value, as_text=as_text)
                for value in values
            ]
        )
    return columns


def _check(header: Header, dialect: str) -> None:
    require_keyed(header, DOING)
    derived = [name for name in header.key if name in header.derived_key]
    if derived:
        raise ChangesError(
            f"key column {derived[0]!r} does not hold the table's own values: it was folded, or numbers the copies of "
            "a key, so a MERGE would not meet the rows",
            doing=DOING,
            hint="Compare by the key as it is, without a rule for it and without pairing duplicates",
        )
    drifted = (*header.added, *header.removed, *header.retyped)
    if drifted:
        raise ChangesError(
            f"the schema changed ({', '.join(drifted)}), and a MERGE changes rows alone",
            doing=DOING,
            hint="Alter the table first and compare again, or leave these columns out",
        )
    for field in header.after_schema:
        sql_type(field.name, field.type, dialect)


def _merge(target: exp.Table, batch: pa.Table, key: Sequence[str], dialect: str, *, deletes: bool) -> exp.Merge:
    from sqlglot import exp

    merged = exp.Merge(
        this=exp.alias_(target.copy(), "target", table=True),
        using=_source(batch, dialect),
        on=exp.and_(*(_meets(name, dialect, nulls=batch.column(name).null_count > 0) for name in key)),
    )
    if deletes:
        branches = [exp.When(matched=True, then=exp.var("DELETE"))]
    else:
        branches = [exp.When(matched=False, then=_insert(batch.column_names, dialect))]
        values = [name for name in batch.column_names if name not in key]
        if values:
            pairs = [exp.EQ(this=exp.column(_name(n, dialect)), expression=_incoming(n, dialect)) for n in values]
            branches.insert(0, exp.When(matched=True, then=exp.Update(expressions=pairs)))
    merged.set("whens", exp.Whens(expressions=branches))
    return merged


def _source(batch: pa.Table, dialect: str) -> exp.Expression:
    """`(SELECT CAST(c1 AS …) AS "id", … FROM (VALUES …) AS v(c1, …)) AS source`."""
    from sqlglot import exp

    columns, chosen = [], []
    for place, field in enumerate(batch.schema):
        values = python_values(batch.column(place))
        check_values(field, values, dialect)
        as_text = needs_text(field.type, values)
        columns.append([_national(literal(value, as_text=as_text), dialect) for value in values])
        target = _holding(sql_type(field.name, field.type, dialect), values, dialect)
        cast = converted(exp.column(f"c{place + 1}", table="v"), field.type, target, dialect)
        chosen.append(exp.alias_(cast, _name(field.name, dialect)))
    lines = [exp.Tuple(expressions=list(line)) for line in zip(*columns, strict=True)]
    names = [exp.to_identifier(f"c{place + 1}") for place in range(len(columns))]
    values_list = exp.Values(expressions=lines, alias=exp.TableAlias(this=exp.to_identifier("v"), columns=names))
    return exp.select(*chosen).from_(values_list).subquery("source")


def _holding(target: exp.DataType, values: Sequence[Any], dialect: str) -> exp.DataType:
    """The type, or the finer one of DuckDB's that values need."""
    from sqlglot import exp

    finer = _NANOSECONDS.get(target.this.name) if dialect == "duckdb" else None
    if finer is None or not any(isinstance(value, (Instant, TimeSpan)) for value in values):
        return target
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=finer)


def _national(value: exp.Expression, dialect: str) -> exp.Expression:
    """SQL Server reads text in the database's code page, unless it is marked."""
    from sqlglot import exp

    return exp.National(this=value.name) if dialect == "tsql" and value.is_string else value


def _meets(name: str, dialect: str, *, nulls: bool) -> exp.Expression:
    """Where keys are equal. The null-safe comparison, which databases can't hash, only where a key is null."""
    from sqlglot import exp

    ours, theirs = exp.column(_name(name, dialect), table="target"), _incoming(name, dialect)
    if nulls and dialect == "tsql":  # IS NOT DISTINCT FROM is new there
        neither = exp.and_(*(exp.Is(this=one.copy(), expression=exp.Null()) for one in (ours, theirs)))
        return exp.paren(exp.or_(exp.EQ(this=ours, expression=theirs), neither))
    kind = exp.NullSafeEQ if nulls else exp.EQ
    return kind(this=ours, expression=theirs)


def _insert(names: Sequence[str], dialect: str) -> exp.Insert:
    from sqlglot import exp

    return exp.Insert(
        this=exp.Tuple(expressions=[exp.column(_name(name, dialect)) for name in names]),
        expression=exp.Tuple(expressions=[_incoming(name, dialect) for name in names]),
    )


def _incoming(name: str, dialect: str) -> exp.Column:
    from sqlglot import exp

    return exp.column(_name(name, dialect), table="source")


def _name(name: str, dialect: str) -> exp.Identifier:
    """A quoted name; Snowflake folds unquoted names to upper case, so there plain ones stay unquoted."""
    from sqlglot import exp

    plain = dialect == "snowflake" and (_FOLDED.fullmatch(name) or (_FOLDED.fullmatch(name.lower()) and name.isupper()))
    return exp.to_identifier(name, quoted=not plain or name.upper() in _reserved())


@cache
def _reserved() -> frozenset[str]:
    from sqlglot.dialects.snowflake import Snowflake

    return frozenset(word.upper().split()[0] for word in Snowflake.Tokenizer.KEYWORDS if word.strip())


def _target(table_name: str, dialect: str) -> exp.Table:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        table: Any = exp.maybe_parse(table_name, into=exp.Table, dialect=dialect or None)
    except SqlglotError as error:
        raise SqlError(f"{table_name!r} is no name of a table: {str(error).splitlines()[0]}", doing=DOING) from None
    if not isinstance(table, exp.Table) or not table.name or table.args.get("alias"):
        raise SqlError(f"{table_name!r} is no name of a table", doing=DOING, hint="Give a name such as shop.orders")
    return table


def _dialect(name: str) -> str:
    if name not in DIALECTS:
        raise InputError(f"unknown dialect {name!r}", doing=DOING, hint=f"Choose one of {', '.join(DIALECTS)}")
    return {"standard": "", "sqlserver": "tsql"}.get(name, name)


def _sql(statement: exp.Expression, dialect: str) -> str:
    return f"{statement.sql(dialect=dialect or None, pretty=True, max_text_width=LINE)};"


def _batches(rows: pa.Table) -> Iterator[pa.Table]:
    for start in np.arange(0, len(rows), BATCH).tolist():
        yield rows.slice(start, BATCH)

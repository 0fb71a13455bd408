"""SQL queries over the tables of a state: read-only, over nothing but these tables.

The query is parsed with sqlglot: it must be one query, every table that it names must be in the store, and functions
that make tables of something else (files, settings) are refused. DuckDB runs it over Arrow, or reads the pages of large
tables itself (`files_of_table`), with no access to anything outside these. Spark runs it when the tables are large, and
all of it is known to mean the same to Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from strandline.engine import SparkAction
from strandline.errors import Cancelled, NotFound, SqlError
from strandline.pages import PARTIAL, ReadView, is_own_name
from strandline.storage import cached_property
from strandline.tables.page_cache import PageCache
from strandline.tables.page_files import PageFiles, files_of_table, query_over
from strandline.tables.scan import TableReader
from strandline.tables.spark_sql import unlike_on_spark
from strandline.values import cast_rows, check_microseconds, free_name, in_sql_type, no_rows, parse_query, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DOING = "running a query"


class QueryableRelation(Protocol):
    """What a query can be about: a table at a state, or what others read like one."""

    @property
    def shown(self) -> tuple[str, ...]: ...

    @property
    def arrow_schema(self) -> pa.Schema: ...

    @property
    def bytes(self) -> int: ...

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table: ...


class Query:
    """A checked query on one state. `others` are the relations beside its tables, by name; a table comes first."""

    def __init__(
        self,
        sql: str,
        view: ReadView,
        cache: PageCache,
        others: Mapping[str, Callable[[], QueryableRelation]] | None = None,
    ) -> None:
        self.sql = sql
        self._tree = parse_query(sql, _DOING)
        tables = {entry.name for entry in view.domains()}
        self._readers: dict[str, QueryableRelation] = {
            name: TableReader(view, name, cache) if name in tables else (others or {})[name]()
            for name in _resolved(self._tree, {*tables, *(others or {})}, partial=view.is_partial)
        }

    @cached_property
    def _meant(self) -> set[str] | None:
        return names_meant(self._tree)

    @property
    def bytes(self) -> int:
        """The size of the relations that it names."""
        return sum(reader.bytes for reader in self._readers.values())

    def in_process(self) -> pa.Table:
        """The result, computed by DuckDB in this process."""
        import duckdb

        files = self._files()
        if files:
            # What DuckDB does not read of pages it may read of Arrow; a mistake in the query is told by that.
            with suppress(duckdb.Error):
                return self._computed(self._tables(files), files)
        try:
            return self._computed(self._tables({}), {})
        except duckdb.Error as error:
            raise SqlError(str(error).strip().splitlines()[0], doing=_DOING, hint=self._hint()) from None

    def _files(self) -> dict[str, PageFiles]:
        """The tables whose pages DuckDB can read itself."""
        tables = {name: reader for name, reader in self._readers.items() if isinstance(reader, TableReader)}
        known = {name: files_of_table(reader, self._columns(reader)) for name, reader in tables.items()}
        return {name: files for name, files in known.items() if files is not None}

    def _tables(self, files: Mapping[str, PageFiles]) -> dict[str, pa.Table]:
        """The relations that are not files."""
        read = {name: one for name, one in self._readers.items() if name not in files}
        return {name: _in_sql(one.to_arrow(self._columns(one))) for name, one in read.items()}

    def _computed(self, tables: Mapping[str, pa.Table], files: Mapping[str, PageFiles]) -> pa.Table:
        """The result by DuckDB over tables, and over files that it reads itself."""
        # Other names: to DuckDB, names that differ in case alone are one.
        names = own_names(self._tree, list(self._readers))
        tree = relations_called(self._tree, names)
        given = {names[name]: table for name, table in tables.items()}
        text = tree.sql(dialect="duckdb", copy=False)
        return query_over(text, {names[name]: one for name, one in files.items()}, given)

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns that it can mean, of each relation that it names."""
        return {name: self._columns(reader) for name, reader in self._readers.items()}

    @cached_property
    def _schemas(self) -> dict[str, pa.Schema]:
        """Of what it can mean, by relation."""
        shapes = {name: reader.arrow_schema for name, reader in self._readers.items()}
        return {name: pa.schema([shapes[name].field(one) for one in names]) for name, names in self.columns.items()}

    @property
    def unlike_on_spark(self) -> str | None:
        """The first part of it that Spark may understand otherwise."""
        return unlike_on_spark(self._tree, self._schemas)

    def on_spark(self, frames: Mapping[str, DataFrame]) -> pa.Table:
        """The result, computed by Spark over the `columns` of each relation as DataFrames, all of one state; in the
        types and under the names that DuckDB gives it.
        """
        import duckdb

        session = next(iter(frames.values())).sparkSession
        if session.conf.get("spark.sql.ansi.enabled") != "true":
            hint = "Set spark.sql.ansi.enabled to true, or have the query computed in this process"
            raise SqlError("numbers overflow in silence in this Spark session", doing=_DOING, hint=hint)
        try:
            schema = self._computed({name: _in_sql(no_rows(one)) for name, one in self._schemas.items()}, {}).schema
        except duckdb.Error as error:
            raise SqlError(str(error).strip().splitlines()[0], doing=_DOING, hint=self._hint()) from None
        try:
            result = spark_query(self._tree, frames)
            rows = SparkAction(session, result.toArrow, _DOING).run()
        except Cancelled:
            raise
        except Exception as error:
            first = str(error).strip().splitlines()[0]
            raise SqlError(f"Spark refused it: {first}", doing=_DOING, hint=self._hint()) from None
        places = [str(place) for place in range(len(schema))]  # names may stand twice
        places_of = pa.schema([field.with_name(place) for place, field in zip(places, schema, strict=True)])
        return cast_rows(rows.rename_columns(places), places_of).rename_columns(schema.names)

    def _columns(self, reader: QueryableRelation) -> list[str]:
        """The columns that the query can mean."""
        names = list(reader.shown)
        if self._meant is not None:
            names = [name for name in names if name.lower() in self._meant] or names[:1]
        lower = [name.lower() for name in names]
        twins = [name for name in names if lower.count(name.lower()) > 1]
        if twins:
            reason = f"columns {', '.join(twins)} differ only in case"
            raise SqlError(reason, doing=_DOING, hint="SQL takes them for one: rename one")
        return names

    def _hint(self) -> str:
        shapes = [f"{name}({', '.join(reader.shown)})" for name, reader in self._readers.items()]
        return f"The tables are {', '.join(shapes)}" if shapes else ""


def spark_query(tree: Any, frames: Mapping[str, DataFrame]) -> DataFrame:
    """A parsed query in Spark's dialect, over DataFrames by the names that it gives to relations; lazy."""
    # Names of their own: other queries may run in the same session meanwhile.
    names = {name: f"strandline_{secrets.token_hex(6)}" for name in frames}
    tree = relations_called(tree, names)
    session = next(iter(frames.values())).sparkSession
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(names[name])
        return session.sql(translated(tree, "spark", identify=False))
    finally:
        # The plan has found its tables by now.
        for name in names.values():
            session.catalog.dropTempView(name)


def _in_sql(table: pa.Table) -> pa.Table:
    """The columns in types that DuckDB knows; one whose values it would change is refused."""
    for field in table.schema:
        if "duration[ns]" in str(field.type):  # at any depth; DuckDB has intervals in microseconds alone
            check_microseconds(table.column(field.name), field.name, _DOING)
    return pa.table({name: in_sql_type(table.column(name), name) for name in table.column_names})


def own_names(tree: Any, relations: Sequence[str]) -> dict[str, str]:
    """A name for each relation that nothing in a query has, whatever the case."""
    from sqlglot import exp

    taken = [identifier.name for identifier in tree.find_all(exp.Identifier)]
    return {name: free_name(f"strandline relation {place}", taken) for place, name in enumerate(relations)}


def relations_called(tree: Any, names: Mapping[str, str]) -> Any:
    """The query with other names for relations, which keep their own as aliases."""
    from sqlglot import exp

    tree = tree.copy()
    for table in [one for one in tree.find_all(exp.Table) if one.name in names and not is_defined_here(one)]:
        if not table.alias:
            alias = table.args.get("alias") or exp.TableAlias()
            alias.set("this", exp.to_identifier(table.name, quoted=True))
            table.set("alias", alias)
        table.set("this", exp.to_identifier(names[table.name], quoted=True))
    return tree


def _resolved(tree: Any, known: Set[str], *, partial: bool) -> list[str]:
    """The relations of the store that a query names; on the way their names become the store's own."""
    from sqlglot import exp

    if any(call.name.casefold() == "current_setting" for call in tree.find_all(exp.Anonymous)):
        raise SqlError("settings can't be asked for", doing=_DOING, hint="Query the store's tables")
    named: dict[str, None] = {}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            raise SqlError(f"{table.sql()} is no table of the store", doing=_DOING, hint="Query the store's tables")
        if not table.db and not table.catalog and is_defined_here(table):
            continue
        alike = [name for name in known if name.lower() == table.name.lower()]
        name = table.name if table.name in known else alike[0] if len(alike) == 1 else None
        if name is None or table.db or table.catalog:
            listed = ", ".join(sorted(name for name in known if not is_own_name(name))[:20])
            hint = f"The tables are {listed}" if listed else "There are no tables yet"
            hint = f"{hint}. {PARTIAL}" if partial else hint
            raise NotFound(f"there is no table {table.sql()}", doing=_DOING, hint=hint)
        table.this.set("this", name)
        table.this.set("quoted", True)
        named[name] = None
    return list(named)


def names_meant(tree: Any) -> set[str] | None:
    """What columns are called that a query can mean, in lower case. None where it can mean columns that it does not
    name: by a star, a pattern, a pivot, a natural join, a place (`#1`, or other names for a relation's first columns,
    as in `orders AS o(no)`), or a relation's name that stands for a whole row.
    """
    from sqlglot import exp

    columns, named, relations = set(), set(), set()
    for node in tree.walk():
        if isinstance(node, (exp.Star, exp.Columns, exp.Pivot)) and not isinstance(node.parent, exp.Count):
            return None
        if isinstance(node, exp.Join) and str(node.args.get("method") or "").upper() == "NATURAL":
            return None
        if isinstance(node, exp.PositionalColumn) or (node.args.get("columns") and _names_a_relation(node)):
            return None
        if isinstance(node, (exp.Table, exp.Subquery, exp.CTE)):
            relations.add(node.alias_or_name.lower())
        elif isinstance(node, exp.Column):
            columns.add(node.name.lower())
        elif isinstance(node, exp.Identifier):
            named.add(node.name.lower())
    return columns | named if columns.isdisjoint(relations) else None


def _names_a_relation(node: Any) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.TableAlias) and not isinstance(node.parent, exp.CTE)


def is_defined_here(table: Any) -> bool:
    """Whether the name is that of a WITH clause around the table. Inside a definition it means what it meant before:
    a definition sees those before it, and itself if they are recursive.
    """
    from sqlglot import exp

    node, inside = table, None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        clause = node.args.get("with_") or node.args.get("with")
        if isinstance(clause, exp.With):
            own = [place for place, one in enumerate(clause.expressions) if one is inside]
            seen = clause.expressions[: own[0]] if own and not clause.args.get("recursive") else clause.expressions
            if any(one.alias.lower() == table.name.lower() for one in seen):
                return True
        node = node.parent
    return False

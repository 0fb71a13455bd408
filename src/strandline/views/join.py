"""The defining query over given rows: σ and the joins by DuckDB, simple σ and π by Arrow.

`joined` computes it over rows in memory. DuckDB sees only the columns that the condition and computed outputs read, and
gives back row numbers; the other columns are taken from the rows themselves, so they come out as they went in, whatever
their types. Every input may carry `_count`; the counts of rows that meet are multiplied.

SQL sees instants with a zone, and durations, in microseconds. Columns of such a type in nanoseconds are compared with
each other as whole numbers of nanoseconds (`_with_nanoseconds`); wherever else SQL reads one, it may only hold whole
microseconds, and the query is refused otherwise: nothing is rounded.

`run_join` computes it over relations that are too large for one process, by kernels: one for each stretch of the
largest relation. The other inputs go to every kernel: the change, which is small, and whatever else the query reads. A
join distributes over the rows of any one input, so the results need only be put together. They are not net: `net` adds
up the counts of equal rows. Where reading the second largest so often costs more than moving both, those two are
brought together by the columns in which they must be equal, and the kernels run where they meet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.changes import COUNT, net_counts, part_scan, parts_of, read_parts, write_part
from strandline.engine import (
    INLINE_LIMIT,
    Attempt,
    DuckdbConnection,
    Outcome,
    PerThread,
    Result,
    Runner,
    SparkRunner,
    Spool,
    WorkItem,
    choose_runner,
    cut_evenly,
    kernel,
    kernel_duckdb,
    machine_memory,
)
from strandline.errors import SqlError
from strandline.relations import BucketScans, Exchange, ExchangeSide, Scan, open_relation, read_scan, run_exchanged
from strandline.storage import JsonRecord, Storage, cached_property
from strandline.tables import table_relation
from strandline.values import (
    NanosecondColumn,
    arrow_condition,
    cast_rows,
    check_microseconds,
    compare_exactly,
    durations,
    free_name,
    is_sought,
    no_rows,
    parse_written,
    plain,
    plain_schema,
    quoted,
    readable,
    sql_rounds,
)
from strandline.views.definition import QualifiedColumn, ViewDefinition, equated_columns, sql_text
from strandline.views.store_state import StoreState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ROW_NUMBER = "strandline row"
_Matches = tuple[dict[str, pa.Array | None], dict[str, pa.ChunkedArray]]
"""For each alias the numbers of the rows that meet (None: all rows, in order), and the computed outputs."""


@dataclass(frozen=True)
class Join(JsonRecord):
    """A definition's query as plain text, so that it can travel to workers.

    `taken` leads from outputs to the alias and column that they are, `computed` to their expressions. `read` lists, for
    each alias, the columns that SQL reads.
    """

    aliases: tuple[str, ...]
    where: str
    taken: Mapping[str, tuple[str, str]]
    computed: Mapping[str, str]
    read: Mapping[str, tuple[str, ...]]
    schema: pa.Schema
    equal: tuple[tuple[QualifiedColumn, QualifiedColumn], ...] = ()
    """Pairs of columns that the condition equates, whatever their types."""

    @staticmethod
    def of(definition: ViewDefinition) -> Join:
        from sqlglot import exp

        taken = {output.name: output.source for output in definition.outputs if output.source is not None}
        trees = {output.name: output.expression for output in definition.outputs if output.source is None}
        read = [*trees.values(), *([definition.condition] if definition.condition is not None else [])]
        columns = {(column.table, column.name) for tree in read for column in tree.find_all(exp.Column)}
        aliases = tuple(one.alias for one in definition.occurrences)
        return Join(
            aliases,
            definition.condition_text,
            taken,
            {name: sql_text(tree) for name, tree in trees.items()},
            {alias: tuple(sorted(name for owner, name in columns if owner == alias)) for alias in aliases},
            definition.schema,
            tuple(equated_columns(definition.conjuncts())),
        )

    def columns_of(self, alias: str) -> tuple[str, ...]:
        """Everything of an occurrence that the query needs."""
        wanted = {*self.read[alias], *(name for owner, name in self.taken.values() if owner == alias)}
        return tuple(sorted(wanted))

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of what `joined` gives."""
        return counted_schema(self.schema)


def counted_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of rows that each have a count."""
    return plain_schema(schema).append(pa.field(COUNT, pa.int64()))


class QueryEngine:
    """The memory and the spill folder that a computation may use, and the DuckDB connection in them, opened once.

    One engine serves one thread.
    """

    def __init__(self, memory: int | None = None, spill: str | None = None) -> None:
        self.memory = machine_memory() // 2 if memory is None else memory
        self.spill = tempfile.gettempdir() if spill is None else spill

    @cached_property
    def _connection(self) -> DuckdbConnection:
        connection = kernel_duckdb(self.memory, self.spill)
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def query(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of one query over Arrow tables, which are forgotten again."""
        return self._connection.query(sql, tables)


_engines = PerThread(QueryEngine)


def thread_engine() -> QueryEngine:
    """This thread's engine, for computations that are not told another."""
    return _engines.get()


def joined(join: Join, tables: Mapping[str, pa.Table], engine: QueryEngine | None = None) -> pa.Table:
    """The rows of the query over these tables by alias, with `_count`; equal rows may come out several times."""
    tables = {alias: plain(table) for alias, table in tables.items()}
    if any(not len(table) for table in tables.values()):
        return no_rows(join.rows_schema)
    numbers, computed = _selected(join, tables) or _matches(join, tables, engine or thread_engine())
    columns: dict[str, Any] = {}
    for name in join.schema.names:
        if name in computed:
            column = computed[name]
            columns[name] = durations(column, "computing a view") if pt.is_interval(column.type) else column
        else:
            alias, source = join.taken[name]
            columns[name] = _taken(tables[alias].column(source), numbers[alias])
    length = len(next(iter(columns.values())))
    counts = np.ones(length, dtype=np.int64)
    for alias, table in tables.items():
        if COUNT in table.column_names:
            counts = counts * np.asarray(_taken(table.column(COUNT), numbers[alias]), dtype=np.int64)
    columns[COUNT] = pa.array(counts)
    return cast_rows(pa.table(columns), join.rows_schema)


def _selected(join: Join, tables: Mapping[str, pa.Table]) -> _Matches | None:
    """The matches where rows of one relation are chosen by a condition that needs no SQL engine; None elsewhere."""
    if len(join.aliases) > 1 or join.computed:
        return None
    (alias,) = join.aliases
    if join.where == "true":
        return {alias: None}, {}
    condition = arrow_condition(join.where, alias, tables[alias].schema)
    if condition is None:
        return None
    return {alias: pa.array(np.flatnonzero(pc.fill_null(condition(tables[alias]), False)))}, {}


def _matches(join: Join, tables: Mapping[str, pa.Table], engine: QueryEngine) -> _Matches:
    import duckdb

    fine = frozenset(
        NanosecondColumn(alias, name, free_name(f"strandline nanoseconds {name}", join.read[alias]), str(type_))
        for alias in join.aliases
        for name in join.read[alias]
        if sql_rounds(type_ := tables[alias].schema.field(name).type)
    )
    compared = _with_nanoseconds(join.where, tuple(join.computed.values()), fine)
    inputs = {
        f"strandline {number}": _input(join, alias, tables[alias], compared)
        for number, alias in enumerate(join.aliases)
    }
    selected = [
        f'{quoted(alias)}.{quoted(free_name(_ROW_NUMBER, join.read[alias]))} AS "strandline row {number}"'
        for number, alias in enumerate(join.aliases)
    ]
    selected += [f'{sql} AS "strandline value {number}"' for number, sql in enumerate(join.computed.values())]
    mentioned = [f'"{name}" AS {quoted(alias)}' for name, alias in zip(inputs, join.aliases, strict=True)]
    sql = f"SELECT {', '.join(selected)} FROM {', '.join(mentioned)} WHERE {compared.where}"
    try:
        result = engine.query(sql, inputs)
    except duckdb.Error as error:
        message = str(error).strip().splitlines()[0]
        raise SqlError(f"the query can't be computed: {message}", doing="computing a view") from None
    numbers: dict[str, pa.Array | None] = {alias: result.column(place) for place, alias in enumerate(join.aliases)}
    count = len(join.aliases)
    return numbers, {name: result.column(count + place) for place, name in enumerate(join.computed)}


def _input(join: Join, alias: str, table: pa.Table, compared: _Compared) -> pa.Table:
    """The columns that SQL reads of an occurrence under their own names, and ours under names that none of them has."""
    columns: dict[str, Any] = {free_name(_ROW_NUMBER, join.read[alias]): pa.array(np.arange(len(table)))}
    for name in join.read[alias]:
        if (alias, name) in compared.otherwise:
            check_microseconds(table.column(name), name, "computing a view")
        columns[name] = readable(table.column(name), name)
    for one in compared.nanoseconds:
        if one.table == alias:
            columns[one.own_name] = table.column(one.name).cast(pa.int64())
    return pa.table(columns)


@dataclass(frozen=True)
class _Compared:
    """A condition in which columns of nanoseconds are compared as numbers, and those that SQL reads otherwise."""

    where: str
    nanoseconds: frozenset[NanosecondColumn] = frozenset()
    otherwise: frozenset[QualifiedColumn] = frozenset()


@lru_cache(maxsize=256)
def _with_nanoseconds(where: str, computed: tuple[str, ...], fine: frozenset[NanosecondColumn]) -> _Compared:
    """The condition with comparisons of columns of nanoseconds (`fine`), each with its like, made exact."""
    from sqlglot import exp

    if not fine:
        return _Compared(where)
    tree = parse_written(where)
    exact = compare_exactly(tree, fine)
    trees = [tree, *(parse_written(text) for text in computed)]
    left = {(column.table, column.name) for one in trees for column in one.find_all(exp.Column)}
    return _Compared(sql_text(tree), exact, frozenset(left & {(one.table, one.name) for one in fine}))


def _taken(column: pa.ChunkedArray, numbers: pa.Array | None) -> pa.ChunkedArray:
    return column if numbers is None else column.take(numbers)


def net(rows: pa.Table) -> pa.Table:
    """Equal rows once, their counts added up; those whose counts cancel out are gone."""
    names = [name for name in rows.column_names if name != COUNT]
    numbers, counts = net_counts(rows.select(names), np.asarray(rows.column(COUNT), dtype=np.int64))
    return rows.select(names).take(pa.array(numbers)).append_column(pa.field(COUNT, pa.int64()), pa.array(counts))


def repeated(rows: pa.Table, sign: int = 1) -> pa.Table:
    """Rows that have a count of this sign, net, as often as it says."""
    counts = np.asarray(rows.column(COUNT), dtype=np.int64) * sign
    if (counts == 1).all():
        return rows.drop_columns([COUNT])
    rows = net(rows)
    counts = np.asarray(rows.column(COUNT), dtype=np.int64) * sign
    plain = rows.drop_columns([COUNT])
    return plain.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))


def counted_once(rows: pa.Table) -> pa.Table:
    """Rows with `_count` 1 each; equal rows stay apart."""
    return rows.append_column(pa.field(COUNT, pa.int64()), pa.array(np.ones(len(rows), dtype=np.int64)))


ITEMS = 2
"""Work items for each processor: stretches differ in what they cost."""

BUCKET_BYTES = 32 << 20
"""Stored bytes that meet in one place."""


@dataclass(frozen=True)
class JoinRunner:
    """Where work runs: `auto` takes this process below the limit and Spark above it. `storage` holds the pages."""

    runner: str = "auto"
    session: SparkSession | None = None
    storage: Storage | None = None

    @property
    def inline_limit(self) -> float:
        """Relations of so many bytes are not read here; kernels do."""
        if self.storage is None or self.runner == "inline":
            return float("inf")
        return 0 if self.runner == "spark" else INLINE_LIMIT

    @property
    def filter_limit(self) -> float:
        """The same for relations of which few rows are kept, those that meet a change: they only cost reading."""
        return self.inline_limit * 16

    def on_spark(self, state: StoreState, relations: Iterable[str]) -> Runner | None:
        """The runner of kernels over all rows of relations, if these are large enough for kernels and it is Spark."""
        sizes = [state.bytes(relation) for relation in relations]
        if not any(size >= self.inline_limit for size in sizes):
            return None
        runner = choose_runner(self.runner, sum(sizes), self.session)
        return runner if isinstance(runner, SparkRunner) else None


@dataclass(frozen=True)
class JoinInput:
    """The rows of one occurrence, where they lie."""

    alias: str
    scans: list[Scan]

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)


def run_join(
    join: Join, known: Mapping[str, pa.Table], whole: Mapping[str, tuple[StoreState, str]], running: JoinRunner
) -> pa.Table:
    """The rows of the query over tables in memory and whole relations, with `_count`; not net."""
    with Spool() as spool:
        inputs = [JoinInput(alias, _scans_of(rows, spool)) for alias, rows in known.items()]
        inputs += [
            JoinInput(alias, relation_scans(state, relation, join.columns_of(alias), running))
            for alias, (state, relation) in whole.items()
        ]
        runner = choose_runner(running.runner, sum(one.bytes for one in inputs), running.session)
        return read_parts([scan.path for scan in join_scans(join, inputs, runner, spool)], join.rows_schema)


def join_scans(join: Join, inputs: Sequence[JoinInput], runner: Runner, spool: Spool) -> list[Scan]:
    """The same over scans; the rows as scans of what the kernels wrote into the spool."""
    if not all(one.scans for one in inputs):
        return []
    count = runner.parallelism * ITEMS
    pair = _exchanged_pair(join, inputs, count)
    if pair is None:
        outcomes = runner.run(join_pages, _items(join, inputs, count), spool, "joining")
    else:
        (left, right), exchange = pair
        item = _item(join, [one for one in inputs if one not in (left, right)])
        met = {left.alias: BucketScans(0), right.alias: BucketScans(1)}
        template = {**item, "inputs": {**item["inputs"], **met}}
        outcomes = run_exchanged(exchange, join_pages, template, (runner, spool), "joining")
    return written_scans(outcomes, join.rows_schema)


def written_scans(outcomes: Iterable[Outcome], schema: pa.Schema) -> list[Scan]:
    """What kernels wrote (`written`), as scans."""
    return [part_scan(part, schema) for part in parts_of(outcomes) if part.rows]


def written(rows: pa.Table, attempt: Attempt) -> dict[str, Any]:
    """Rows as a file that later work items read: the result of a kernel for `written_scans`."""
    path = attempt.handed_on("rows.parquet")
    return {"path": path, "rows": len(rows), "bytes": write_part(rows, path)}


def _exchanged_pair(
    join: Join, inputs: Sequence[JoinInput], count: int
) -> tuple[tuple[JoinInput, JoinInput], Exchange] | None:
    """The two largest inputs and how they meet, where moving both costs less than reading the smaller in every item."""
    if len(inputs) < 2:
        return None
    left, right = sorted(inputs, key=lambda one: one.bytes)[:-3:-1]
    total = left.bytes + right.bytes
    pairs = [dict(pair) for pair in join.equal if {alias for alias, _ in pair} == {left.alias, right.alias}]
    pairs = [pair for pair in pairs if _is_met(pair, left, right)]
    if not pairs or right.bytes * count <= 2 * total:
        return None
    sides = []
    for one in (left, right):
        wanted = {*join.columns_of(one.alias), COUNT}
        schema = pa.schema([field for field in one.scans[0].schema if field.name in wanted])
        scans = tuple(replace(scan, schema=schema) for scan in one.scans)
        sides.append(ExchangeSide(schema, [pair[one.alias] for pair in pairs], scans))
    return (left, right), Exchange(tuple(sides), max(count, total // BUCKET_BYTES))


def _is_met(pair: Mapping[str, str], left: JoinInput, right: JoinInput) -> bool:
    """Whether equal values of two columns have equal hashes."""
    types = [one.scans[0].schema.field(pair[one.alias]).type for one in (left, right)]
    return types[0] == types[1] and is_sought(types[0])


def whole_items(
    join: Join, whole: Mapping[str, tuple[StoreState, str]], running: JoinRunner, size: int
) -> list[dict[str, Any]]:
    """The query over whole relations as work items, each with about so many bytes of the largest of them."""
    inputs = [
        JoinInput(alias, relation_scans(state, relation, join.columns_of(alias), running))
        for alias, (state, relation) in whole.items()
    ]
    return _items(join, inputs, max(one.bytes for one in inputs) // size + 1)


def _items(join: Join, inputs: Sequence[JoinInput], count: int) -> list[dict[str, Any]]:
    largest = max(inputs, key=lambda one: one.bytes)
    others = [one for one in inputs if one is not largest]
    return [
        _item(join, [JoinInput(largest.alias, piece), *others])
        for piece in cut_evenly(largest.scans, lambda scan: scan.bytes, count)
    ]


@kernel
def join_pages(item: WorkItem, attempt: Attempt) -> Result:
    """The query over one stretch of its largest relation."""
    rows, read = joined_item(item, QueryEngine(attempt.memory, attempt.spool))
    return {**written(rows, attempt), "rows_read": read}


def joined_item(item: WorkItem, engine: QueryEngine | None = None) -> tuple[pa.Table, int]:
    """The rows of one work item, with `_count`, and how many rows were read for them."""
    join = Join.from_json(item["join"])
    tables = {}
    for alias, scans in item["inputs"].items():
        read = [Scan.from_json(scan) for scan in scans]
        if not read:
            return no_rows(join.rows_schema), 0
        columns = [name for name in (*join.columns_of(alias), COUNT) if name in read[0].schema.names]
        batches = [batch for scan in read for batch in read_scan(scan, columns or read[0].schema.names[:1])]
        tables[alias] = pa.Table.from_batches(batches) if batches else no_rows(read[0].schema)
    return joined(join, tables, engine), sum(len(table) for table in tables.values())


def _item(join: Join, inputs: Sequence[JoinInput]) -> dict[str, Any]:
    return {"join": join.to_json(), "inputs": {one.alias: [scan.to_json() for scan in one.scans] for one in inputs}}


def _scans_of(rows: pa.Table, spool: Spool) -> list[Scan]:
    return [part.scan for part in open_relation(rows, spool=spool).parts()]


def relation_scans(state: StoreState, relation: str, columns: Sequence[str], running: JoinRunner) -> list[Scan]:
    """All rows of a relation as scans: of a table's pages, or of rows that are read here."""
    # Relations are joined whole only where `storage` is known: without it, `inline_limit` is infinite.
    if state.is_table(relation) and running.storage is not None:
        return [part.scan for part in table_relation(state.view, relation, state.cache, running.storage).parts()]
    return [part.scan for part in open_relation(state.rows(relation, columns)).parts()]

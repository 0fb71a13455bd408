"""`Changes`: a change set as users hold it. It only delegates; each verb runs once, when it is called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import files
from strandline.changes.applied import Applied, apply_stored
from strandline.changes.compose import composed_header
from strandline.changes.consolidate import consolidated_header
from strandline.changes.conversion import counted_again, keyed_again
from strandline.changes.events import cdf_changes, debezium_changes
from strandline.changes.execution import (
    Call,
    StoredChanges,
    VerbRunner,
    frame_of,
    keep_for_frames,
    rows_record,
    run_by_part,
    run_by_value,
    small_frame,
    store,
)
from strandline.changes.fill import filled_header
from strandline.changes.invert import inverted_header
from strandline.changes.part_files import PartFile, check_carried, read_parts
from strandline.changes.project import projected_header
from strandline.changes.restrict import restricted_header
from strandline.changes.shape import COUNT, COUNTED, ChangeSet, Header, kinds
from strandline.engine import INLINE_LIMIT, Spool
from strandline.relations import names_of, open_relation
from strandline.values import ArrowRows, parse_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Summary:
    """How much changed. In a counted set `inserted` and `deleted` are rows added and removed, and `updated` is 0.

    `unchanged` is None where it was not counted, `columns` (updates in which each value column differs) where the set
    does not know. `added`, `removed` and `retyped` are the columns whose values a partial set does not hold.
    """

    form: str
    inserted: int
    updated: int
    deleted: int
    unchanged: int | None
    columns: Mapping[str, int] | None
    added_columns: tuple[str, ...] = ()
    removed_columns: tuple[str, ...] = ()
    retyped_columns: tuple[str, ...] = ()
    inexact: bool = False

    @property
    def added(self) -> int:
        """Rows added: the word for counted sets."""
        return self.inserted

    @property
    def removed(self) -> int:
        """Rows removed: the word for counted sets."""
        return self.deleted

    @property
    def changed(self) -> int:
        """All changes together; 0 means that the relations are equal in what was compared."""
        return self.inserted + self.updated + self.deleted

    def to_json(self) -> dict[str, Any]:
        columns = None if self.columns is None else dict(self.columns)
        lists = {name: list(getattr(self, name)) for name in ("added_columns", "removed_columns", "retyped_columns")}
        return {**vars(self), "columns": columns, **lists}

    def __str__(self) -> str:
        if self.form == COUNTED:
            text = f"{self.added:,} rows added, {self.removed:,} removed"
        else:
            text = f"{self.inserted:,} inserted, {self.updated:,} updated, {self.deleted:,} deleted"
        return text if self.unchanged is None else f"{text}, {self.unchanged:,} unchanged"


class Changes(ArrowRows):
    """What changed between two relations: rows in Parquet parts, and a header that says what they mean.

    Verbs give new change sets and leave this one alone. Each takes `runner` (`auto`, `inline` or `spark`) and
    `session`, a Spark session to use instead of Strandline's own.
    """

    def __init__(self, stored: StoredChanges, spool: Spool | None = None) -> None:
        self._stored = stored
        self._spool = spool  # kept alive: the parts are in it

    @staticmethod
    def of(changes: ChangeSet) -> Changes:
        """A change set in memory as `Changes`."""
        check_carried(changes.header.rows_schema)
        spool = Spool()
        return Changes(store(changes, spool), spool)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Changes:
        """A saved change set, once every byte of it is checked."""
        return Changes(files.load(path))

    @staticmethod
    def from_cdf(table: Any, since: int, until: int | None = None, *, key: str | Sequence[str]) -> Changes:
        """The net changes that a Delta table's change data feed tells, from version `since` to `until`, or the last.

        `table` is a path or a `DeltaTable`. Events of one key collapse, once they prove to be the story of one row.
        """
        return Changes.of(cdf_changes(table, since, until, names_of(key)))

    @staticmethod
    def from_debezium(source: Any, *, key: str | Sequence[str], schema: pa.Schema | None = None) -> Changes:
        """The net changes that Debezium's messages tell, in their order: a file of JSON lines, or the messages.

        They need whole before images. `schema` says the types, which JSON does not; without one they are inferred.
        """
        return Changes.of(debezium_changes(source, names_of(key), schema))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the set to the folder `path`, as a whole or not at all."""
        files.save(self._stored, path)

    @property
    def header(self) -> Header:
        return self._stored.header

    @property
    def parts(self) -> tuple[PartFile, ...]:
        """The Parquet files that hold the change rows; they live as long as this object. No key is in two of them."""
        return self._stored.parts

    @property
    def form(self) -> str:
        """`keyed` or `counted`."""
        return self.header.form

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key; none in a counted set."""
        return self.header.key

    @property
    def schema(self) -> pa.Schema:
        """The schema of the relation that the set leads to."""
        return self.header.new_schema

    def summary(self) -> Summary:
        """The set in numbers, without reading its rows."""
        counts = self.header.counts
        return Summary(
            form=self.form,
            inserted=counts.inserted,
            updated=counts.updated,
            deleted=counts.deleted,
            unchanged=counts.unchanged,
            columns=counts.columns,
            added_columns=self.header.added,
            removed_columns=self.header.removed,
            retyped_columns=self.header.retyped,
            inexact=self.header.inexact,
        )

    def to_arrow(self) -> pa.Table:
        """All change rows in memory."""
        rows = read_parts([part.path for part in self._stored.parts], self.header.rows_schema)
        if len(self._stored.parts) < 2:
            return rows
        # Each part has its deletes first, and so has the whole.
        rank = np.sign(np.asarray(rows.column(COUNT))) if self.form == COUNTED else kinds(rows)
        return rows.take(pa.array(np.argsort(rank, kind="stable")))

    arrow = to_arrow

    def tables(self) -> Iterator[pa.Table]:
        """The change rows part by part, for those who don't want all of them in memory; no key is in two parts."""
        for part in self._stored.parts:
            yield read_parts([part.path], self.header.rows_schema)

    def to_set(self) -> ChangeSet:
        """The set in memory, with its header."""
        return ChangeSet(self.header, self.to_arrow())

    def sets(self) -> Iterator[ChangeSet]:
        """The set part by part; no key is in two of them."""
        return (ChangeSet(self.header, rows) for rows in self.tables())

    def to_spark(self, session: SparkSession | None = None) -> DataFrame:
        """The change rows as a Spark DataFrame, in Spark's types (the table is in docs/changes.md)."""
        if self._stored.bytes < INLINE_LIMIT:
            return small_frame(self.to_arrow(), session)
        keep_for_frames(self._spool)
        items = [rows_record(self.header.rows_schema, [scan]) for scan in self._stored.scans()]
        return frame_of(items, self.header.rows_schema, self._stored.bytes, session)

    @property
    def df(self) -> DataFrame:
        """The same as `to_spark()`."""
        return self.to_spark()

    def to_html(self, path: str | os.PathLike[str] | None = None, *, limit: int = 5) -> str:
        """The page that `--html` writes, with `limit` examples of each kind; into the file `path`, if one is named."""
        from strandline.report import changes_page, write_text

        page = changes_page(self, limit)
        if path is not None:
            write_text([page], os.fspath(path))
        return page

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "",
        layout: str = "changes",
        table: str = "",
        dialect: str = "standard",
    ) -> None:
        """Writes the changes as `--out` does: Parquet, Arrow, CSV, JSON lines, Markdown, HTML, SQL, by the suffix or
        `format`; `-` is standard output. `layout` is for rows, `table` and `dialect` are for SQL.
        """
        from strandline.report import Out, write_changes

        write_changes(self, Out(os.fspath(path), format, layout, table, dialect))

    def _rows_schema(self) -> pa.Schema:
        return self.header.rows_schema

    def _repr_html_(self) -> str:
        from strandline.report import changes_html

        return changes_html(self)

    def invert(self, *, runner: str = "auto", session: SparkSession | None = None) -> Changes:
        """The set that undoes this one. Needs before images."""
        call = Call("invert", inverted_header(self.header))
        lost = self.header.form == COUNTED and self.header.fill is not None
        run = self._by_value if lost else self._by_part  # rows that differed in lost columns alone are one value
        counts = self.header.counts
        return run(call, None, runner, session)._of_rows(counts.unchanged, counts.inserted + counts.updated)

    def compose(
        self,
        later: Changes,
        *,
        fill: Mapping[str, Any] | None = None,
        runner: str = "auto",
        session: SparkSession | None = None,
    ) -> Changes:
        """This set and `later`, applied in turn, as one. `fill` says what columns hold that drift added."""
        header = composed_header(self.header, later.header, fill)
        sets = [each if fill is None else each._filled(fill, runner, session) for each in (self, later)]
        filled = () if header.fill is None else header.fill.column_names
        columns = [name for name in header.columns if name not in filled] if header.form == COUNTED else header.key
        stored = [each._stored for each in sets]
        running = VerbRunner.choose(runner, sum(each.bytes for each in stored), session)
        return Changes(run_by_value(running, Call("compose", header), stored, columns), running.spool)

    def apply(
        self,
        relation: Any,
        *,
        lenient: bool = False,
        fill: Mapping[str, Any] | None = None,
        runner: str = "auto",
        session: SparkSession | None = None,
    ) -> Applied:
        """`relation` (a path, a table, a DataFrame) after these changes.

        A set that does not fit is a `ChangesError` that shows keys; `lenient` asks for last-writer semantics. `fill`
        says what columns hold that drift added.
        """
        whole = self if fill is None else self._filled(fill, runner, session)
        spool = Spool()
        base = open_relation(relation, session=session, spool=spool)
        running = replace(VerbRunner.choose_for(runner, base, whole._stored.bytes, session), spool=spool)
        return apply_stored(running, whole._stored, base, lenient=lenient)

    def consolidate(
        self, *, ordered: bool = True, runner: str = "auto", session: SparkSession | None = None
    ) -> Changes:
        """The net effect of raw rows; a set that is net already stays as it is."""
        call = Call("consolidate", consolidated_header(self.header), {"ordered": ordered})
        return self._by_value(call, None, runner, session)

    def restrict(
        self,
        where: str,
        params: Mapping[str, Any] | None = None,
        *,
        runner: str = "auto",
        session: SparkSession | None = None,
    ) -> Changes:
        """The changes of the rows that satisfy `where`, an SQL condition; updates may become inserts or deletes."""
        held = pa.schema([self.header.new_schema.field(name) for name in self.header.columns])
        condition = parse_condition(where, held, params)
        options = {"sql": condition.sql, "columns": list(condition.columns)}
        return self._by_part(
            Call("restrict", restricted_header(self.header, condition), options), None, runner, session
        )

    def project(self, columns: Sequence[str], *, runner: str = "auto", session: SparkSession | None = None) -> Changes:
        """The changes of some columns; a set that loses part of its key becomes counted."""
        header = projected_header(self.header, columns)
        call = Call("project", header, {"columns": list(columns)})
        if header.form == COUNTED:
            counted = self.to_counted(runner=runner, session=session)
            return counted._by_value(call, None, runner, session)
        counts = self.header.counts
        result = self._by_part(call, None, runner, session)
        return result._of_rows(counts.unchanged, counts.deleted + counts.updated)

    def to_counted(self, *, runner: str = "auto", session: SparkSession | None = None) -> Changes:
        """The same changes as counts of rows. Needs before images."""
        call = Call("to_counted", counted_again(self.header))
        return self._by_part(call, self.header.counts.unchanged, runner, session)

    def to_keyed(
        self, key: str | Sequence[str], *, runner: str = "auto", session: SparkSession | None = None
    ) -> Changes:
        """The same changes by key. Needs at most one row added and one removed for each key."""
        names = names_of(key)
        call = Call("to_keyed", keyed_again(self.header, names), {"key": names})
        return self._by_value(call, self.header.counts.unchanged, runner, session, names)

    def _filled(self, fill: Mapping[str, Any], runner: str, session: SparkSession | None) -> Changes:
        wanted = {*self.header.added, *self.header.retyped} if self.header.partial else set()
        header = filled_header(self.header, {name: value for name, value in fill.items() if name in wanted})
        call = Call("fill", header, {"header": header.to_json()})
        return self._by_part(call, self.header.counts.unchanged, runner, session)

    def _by_part(self, call: Call, unchanged: int | None, runner: str, session: SparkSession | None) -> Changes:
        running = VerbRunner.choose(runner, self._stored.bytes, session)
        return Changes(run_by_part(running, call, self._stored), running.spool)._knowing(unchanged)

    def _by_value(
        self,
        call: Call,
        unchanged: int | None,
        runner: str,
        session: SparkSession | None,
        columns: Sequence[str] = (),
    ) -> Changes:
        running = VerbRunner.choose(runner, self._stored.bytes, session)
        met = columns or (call.header.key if call.header.form != COUNTED else call.header.columns)
        return Changes(run_by_value(running, call, [self._stored], met), running.spool)._knowing(unchanged)

    def _of_rows(self, unchanged: int | None, changed: int) -> Changes:
        """The set from a relation of so many rows: what it does not change of them is unchanged."""
        counts = self.header.counts
        return self._knowing(None if unchanged is None else unchanged + changed - counts.deleted - counts.updated)

    def _knowing(self, unchanged: int | None) -> Changes:
        counts = replace(self.header.counts, unchanged=unchanged)
        return Changes(replace(self._stored, header=replace(self.header, counts=counts)), self._spool)

    def __len__(self) -> int:
        """How many change rows there are."""
        return sum(part.rows for part in self._stored.parts)

    def __bool__(self) -> bool:
        raise TypeError("a change set is neither true nor false; ask len(changes) or changes.summary().changed")

    def __repr__(self) -> str:
        keyed = f" by {', '.join(self.key)}" if self.key else ""
        way = f", {self.header.source} → {self.header.target}" if self.header.source or self.header.target else ""
        marks = [name for name, is_so in (("partial", self.header.partial), ("inexact", self.header.inexact)) if is_so]
        marked = f", {', '.join(marks)}" if marks else ""
        return f"<Changes {self.form}{keyed}: {self.summary()}{marked}{way}>"

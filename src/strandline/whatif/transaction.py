"""A transaction on a what-if: what it locks, how it hands its tuples over, and what a date means (section 4.5).

The live base is read and never locked against writers: once a tuple is changed here, changes below can't affect it, so
it is as if the what-if had been changed first. Only dropping or reshaping the table waits. A differential relation has
one writer at a time.

Dates are commit numbers. A transaction does not know its own before it is installed, and may be installed again on a
newer state. So it hands over tuples that say `UNDATED` in `mindate` (new ones) or in `maxdate` (those that become
invalid), and they are dated when the commit batch is installed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import Conflict, InputError
from strandline.pages import Mode, PageSnapshot, ReadView, TableEdit, TableEntry, Version
from strandline.storage import Storage, retried, unix_time
from strandline.tables import (
    ALL,
    NONE,
    SMALL_WRITES,
    Delta,
    Footprint,
    IntegerKeys,
    PageCache,
    TableTransaction,
    encode_keys,
    ordered_delta,
)
from strandline.whatif.catalog import (
    CATALOG,
    IDS,
    SCHEMA,
    WhatIfChain,
    WhatIfDefinition,
    chain_of,
    differential_table,
)
from strandline.whatif.scan import WhatIfReader
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.tuple_reader import KEY as IDS_KEY
from strandline.whatif.tuple_reader import SCHEMA as IDS_SCHEMA
from strandline.whatif.tuple_reader import write_ids
from strandline.whatif.tuples import (
    CHANGED,
    KEY,
    MAXDATE,
    MINDATE,
    PLACE,
    STORED,
    UNDATED,
    constant,
    constant_value,
    numbers,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class UndatedTuples:
    """Tuples of one differential relation, new and changed, in the columns of its table: a `RowChange` of tables.

    The commit that installs them dates them.
    """

    tuples: pa.Table

    def in_commit(self, edit: TableEdit) -> Delta:
        """The tuples with their dates."""
        return _delta(self.tuples, int(edit.commit))


def _delta(tuples: pa.Table, commit: int) -> Delta:
    for name in (STORED[MINDATE], STORED[MAXDATE]):
        dates = _dated(tuples.column(name), commit)
        tuples = tuples.set_column(tuples.column_names.index(name), tuples.schema.field(name), dates)
    rows = np.broadcast_to(np.int64(NONE), len(tuples))
    if _ascends(tuples.column(STORED[PLACE])):
        return Delta(IntegerKeys([numbers(tuples, name) for name in KEY]), None, rows, tuples)
    return ordered_delta(encode_keys(tuples, KEY), np.arange(len(tuples)), rows, tuples)


def _dated(column: pa.ChunkedArray, commit: int) -> pa.ChunkedArray | pa.Array:
    same = constant_value(column)
    if same is not None:
        return constant(commit, column.type, len(column)) if same == UNDATED else column
    return pc.if_else(pc.equal(column, UNDATED), commit, column)


def _ascends(places: pa.ChunkedArray) -> bool:
    """Whether every place is greater than the one before, so that tuples stand in order; most updates leave them so."""
    if places.type != pa.int64():
        return False
    held = np.asarray(places)
    return bool(np.all(held[1:] > held[:-1]))


ATTEMPTS = 50
"""How often work is tried: writers of one what-if in several processes all want the same differential relation."""
R = TypeVar("R")


class WhatIfHost(Protocol):
    """What a what-if needs of its store."""

    @property
    def pages(self) -> Version: ...

    @property
    def cache(self) -> PageCache: ...

    @property
    def storage(self) -> Storage: ...

    def state(self, at: Any = None) -> AbstractContextManager[ReadView]: ...

    def hold(self, at: Any = None) -> PageSnapshot:
        """The state that `at` means, readable until it is closed."""
        ...

    def frame_of(
        self,
        relation: Any,
        columns: Sequence[str] | None,
        where: str | None,
        params: Mapping[str, Any] | None,
    ) -> DataFrame:
        """A relation as a Spark DataFrame; its states stay readable until the store is closed."""
        ...


class WhatIfTransaction:
    """One transaction; used by one thread. `tables` is the same transaction as tables see it."""

    def __init__(self, home: WhatIfHost, message: str) -> None:
        home.pages.refresh_if_idle()
        self.inner = home.pages.begin(message)
        self.tables = TableTransaction(self.inner, home.cache)
        self.cache = home.cache

    @property
    def view(self) -> ReadView:
        return self.inner.view()

    @property
    def scan(self) -> int:
        """The scan time of reads: everything that is committed."""
        return int(self.view.commit)

    def open(self, name: str) -> OpenWhatIf:
        """Lock a what-if for writing; what it stands on keeps its shape until the end."""
        while True:
            chain = chain_of(self.view, self.cache, name)
            self._lock(chain)
            again = chain_of(self.view, self.cache, name)
            if (again.definitions, again.schema) == (chain.definitions, chain.schema):
                break
        opened = OpenWhatIf(self, again)
        opened.fit()
        return opened

    def differential(self, definition: WhatIfDefinition) -> TableEntry:
        """The table that holds D."""
        return differential_table(self.view, definition)

    def put_definition(self, definition: WhatIfDefinition) -> None:
        self.tables.upsert(CATALOG, pa.Table.from_pylist([definition.row()], schema=SCHEMA))

    def footprint(self) -> Footprint:
        return cast(Footprint, self.inner.footprint)

    def _lock(self, chain: WhatIfChain) -> None:
        self.inner.lock_table(chain.table.domain, Mode.IS)
        self.footprint().tables.add(chain.table.domain)
        for definition in reversed(chain.definitions):
            table = self.view.find_domain(definition.differential)
            if table is None:
                raise Conflict(f"the what-if {definition.name} was dropped meanwhile", doing="opening a what-if")
            own = definition is chain.top
            self.inner.lock_table(table.domain, Mode.X if own else Mode.IS)
            self.footprint().tables.add(table.domain)
            if own:
                self.footprint().note_scan(table.domain, None, ALL)


class OpenWhatIf:
    """A what-if that a transaction may write."""

    def __init__(self, work: WhatIfTransaction, chain: WhatIfChain) -> None:
        self.work = work
        self.chain = chain
        self.definition = chain.top
        self.schema = chain.schema
        self._tuples: list[pa.Table] = []

    @property
    def level(self) -> int:
        return self.chain.level

    def reader(self) -> WhatIfReader:
        return WhatIfReader(self.chain, self.work.view, self.work.cache, scan=self.work.scan)

    def first_tupnum(self) -> int:
        """The number of the next APPEND: D's own row numbers are more than its APPENDs, so it is never used again."""
        return self.work.differential(self.definition).sequence

    def fit(self) -> None:
        """Give D a column for each of the table's, in a type that holds its values."""
        name = self.definition.differential
        if not self.definition.fits(self.schema):
            self.definition = self.definition.reshaped(self.schema)
            self.save_definition()
        held = self.work.tables.schema(name)
        for column in self.schema.columns:
            stored = self.definition.columns[column.id]
            if stored not in held.names:
                default = None if column.default is None else column.default[0]
                self.work.tables.add_column(name, stored, column.type, default=default)
            elif held.field(stored).type != column.type:
                self.work.tables.widen_column(name, stored, column.type)

    def save_definition(self) -> None:
        self.work.put_definition(self.definition)
        self.chain = replace(self.chain, definitions=(self.definition, *self.chain.definitions[1:]))

    def append(self, own: dict[str, pa.Array | pa.ChunkedArray], data: pa.Table | None) -> None:
        """New tuples, or tuples with another `maxdate`: D's own columns, and data under the table's names."""
        schema = self.work.tables.schema(self.definition.differential)
        count = len(next(iter(own.values())))
        stored = {self.definition.columns[column.id]: column.name for column in self.schema.columns}
        columns = []
        # D of an older release has no column for what changed, and may have one of the table's under its name.
        lacking = () if self.definition.since is not None else (CHANGED,)
        named = {STORED[name]: column for name, column in own.items() if name not in lacking}
        for field in schema:
            if field.name in named:
                columns.append(named[field.name])
            elif data is None or field.name not in stored:
                columns.append(pa.nulls(count, field.type))
            else:
                columns.append(data.column(stored[field.name]))
        nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
        self._tuples.append(
            pa.Table.from_arrays([_plain(c, f) for c, f in zip(columns, nullable, strict=True)], schema=nullable)
        )

    def finish(self, added: SeenIds | None = None, *, ids: SeenIds | None = None) -> None:
        """Hand the tuples over. `added`: ids that D did not hold; `ids`: all that it holds from now on."""
        if not self._tuples:
            return
        tuples = self._tuples[0] if len(self._tuples) == 1 else pa.concat_tables(self._tuples).combine_chunks()
        self.work.inner.change(self.work.differential(self.definition).domain, UndatedTuples(tuples))
        if self.schema.key:
            self._index(len(tuples), added, ids)

    def _index(self, written: int, added: SeenIds | None, ids: SeenIds | None) -> None:
        """Keep the index of ids true; begin one when D no longer fits on a page, or will not in a moment."""
        if self.definition.indexed:
            if ids is not None:
                write_ids(self.work.tables, self.definition, ids, anew=True)
            elif added is not None and len(added):
                write_ids(self.work.tables, self.definition, added, anew=False)
            return
        view = self.work.view
        pages = [entry for _, entry in view.pages_between(self.work.differential(self.definition).domain) if entry.rows]
        if len(pages) < 2 and written + sum(entry.rows for entry in pages) <= SMALL_WRITES.page_rows:
            return
        if view.find_domain(IDS) is None:
            self.work.tables.create_own_table(IDS, IDS_SCHEMA, key=IDS_KEY)
        held = ids
        if held is None:
            held = SeenIds.united([self.reader().differential(self.definition).ids, added or SeenIds()])
        write_ids(self.work.tables, self.definition, held, anew=True)
        self.definition = replace(self.definition, indexed=True)
        self.save_definition()


def run_transaction(home: WhatIfHost, message: str, work: Callable[[WhatIfTransaction], R]) -> R:
    """Do work in a transaction of its own, again when another one was in its way."""

    def once() -> R:
        transaction = WhatIfTransaction(home, message)
        with transaction.tables:
            return work(transaction)

    return retried(once, ATTEMPTS)


def refuse_name(transaction: WhatIfTransaction, name: str) -> None:
    """Refuses a name that a what-if can't have."""
    doing = f"creating the what-if {name!r}"
    if not name or name != name.strip() or name.startswith("_"):
        raise InputError(
            f"{name!r} is no name for a what-if", doing=doing, hint="Take a name that begins with a letter"
        )
    taken = transaction.tables.taken_by(name)
    if taken is not None:
        hint = "Drop it, or choose another name" if taken == "what-if" else "Choose another name"
        raise InputError(f"there is a {taken} {name} already", doing=doing, hint=hint)


def _plain(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    return column if column.type == field.type else column.cast(field.type)


def _commit_of_snapshot(home: WhatIfHost, snapshot: Any, doing: str) -> int:
    with home.hold(snapshot) as held:
        if held.view.state.version != home.pages.object:
            hint = "Commits of two branches have the same numbers: give a snapshot of this one, or a datetime"
            raise InputError("the snapshot is of another branch", doing=doing, hint=hint)
        return int(held.commit)


def _commit_before(home: WhatIfHost, when: dt.datetime, doing: str) -> int:
    log = home.pages.log()
    earlier = [entry.commit for entry in log if entry.when <= unix_time(when)]
    if not earlier and log[0].kind != "create":  # the log of a branch begins where it was forked, and logs are cut
        begins = f"{dt.datetime.fromtimestamp(log[0].when, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
        why = f"the log begins at {begins}, and does not reach back to {when}"
        raise InputError(why, doing=doing, hint="Give a commit number, or a snapshot")
    return int(earlier[-1]) if earlier else 0


def commit_of(home: WhatIfHost, when: Any, doing: str) -> int:
    """The commit that a date means: a number, a snapshot or its name, or a datetime: the last commit before it."""
    now = int(home.pages.refresh_if_idle().commit)
    if isinstance(when, dt.datetime):
        return _commit_before(home, when, doing)
    if isinstance(when, str):
        named = [snapshot.commit for snapshot in home.pages.snapshots() if snapshot.name == when]
        if not named:
            raise InputError(f"there is no snapshot {when}", doing=doing, hint="Give a commit number or a datetime")
        return int(named[0])
    number = _commit_of_snapshot(home, when, doing) if hasattr(when, "commit") else when
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InputError(f"{when!r} is no date", doing=doing, hint="Give a commit number, a snapshot or a datetime")
    if number > now:
        raise InputError(f"commit {number} is in the future", doing=doing, hint=f"The last commit is {now}")
    return int(number)

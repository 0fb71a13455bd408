"""`WhatIf`: a what-if as users hold it: the face of a table. It only delegates; every verb is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import Changes, ChangeSet
from strandline.errors import StrandlineError
from strandline.pages import ReadView
from strandline.tables import ALL, PageCache, assignments, key_bounds, reached
from strandline.values import ArrowRows
from strandline.whatif import (
    INFINITY,
    LEVEL,
    MAXDATE,
    MINDATE,
    STORED,
    TUPNUM,
    TYPE,
    Resolve,
    Type,
    WhatIfChain,
    WhatIfHost,
    WhatIfReader,
    WhatIfRelation,
    apply,
    chain_of,
    changes_between,
    commit_of,
    compare,
    conflict_table,
    definitions,
    delete,
    drop,
    insert,
    merge_what_if,
    new_what_if,
    purge,
    rebase,
    relation_of,
    run_transaction,
    stored_name,
    update,
    upsert,
    what_if_changes,
    what_if_relation,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WhatIf(ArrowRows):
    """A table as it would be: changes kept apart over a table, or over another what-if, that goes on changing."""

    def __init__(self, home: WhatIfHost, name: str) -> None:
        self.home = home
        self.name = name

    # What it is

    @property
    def schema(self) -> pa.Schema:
        """Its columns: those of the table that it stands on, now."""
        schema = self._chain().schema
        return pa.schema([schema.arrow_schema.field(name) for name in schema.shown])

    @property
    def key(self) -> tuple[str, ...]:
        """Its key columns; empty when the table has no key."""
        return self._chain().schema.key

    @property
    def level(self) -> int:
        """1 on a table, one more on each what-if."""
        return self._chain().level

    @property
    def base(self) -> str:
        """The name of the table or what-if that it stands on."""
        chain = self._chain()
        return chain.top.below or chain.table.name

    def what_if(self, name: str) -> WhatIf:
        """A new what-if on this one."""
        return create_what_if(self.home, name, self.name)

    # Reading

    def to_arrow(
        self,
        *,
        as_of: Any = None,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Its rows in order of the key.

        `as_of` shows the changes made up to a date: a commit number, a snapshot, a datetime. `at` shows the table below
        in one of its states. Both mean now unless given.
        """
        with self._reader(as_of, at) as reader:
            condition = reader.condition(where, params)
            return reader.rows(columns, condition, key_bounds(condition, reader.schema))

    def to_spark(
        self,
        *,
        as_of: Any = None,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """Its rows as a Spark DataFrame, in Spark's types: each task reads key ranges of the base and of every level.

        The states that it shows stay readable until the store is closed.
        """
        return self.home.frame_of(self.relation(as_of=as_of, at=at), columns, where, params)

    def relation(self, *, as_of: Any = None, at: Any = None) -> WhatIfRelation:
        """Its rows for everything that reads relations: `sl.diff`, kernels on either runner, `open_relation`.

        `as_of` and `at` mean what they mean for `to_arrow`; `Store.named(name, at)` is it as a whole state has it.
        """
        host = self.home
        with host.hold() as now, host.hold(now if at is None else at) as below:
            chain = chain_of(now.view, host.cache, self.name)
            scan = int(now.commit) if as_of is None else commit_of(host, as_of, f"reading {self.name}")
            reader = WhatIfReader(chain, now.view, host.cache, scan=scan, base_view=below.view)
            return what_if_relation(reader, reached(below.view, host.storage), [now.again(), below.again()])

    def count(self, *, as_of: Any = None, at: Any = None) -> int:
        """How many rows it has."""
        with self._reader(as_of, at) as reader:
            return len(reader.rows(reader.schema.key or reader.schema.names[:1], None, ALL))

    def __repr__(self) -> str:
        try:
            chain = self._chain()
        except StrandlineError as error:
            return f"<WhatIf {self.name}: {error.why}>"
        below = chain.top.below or chain.table.name
        keyed = f" by {', '.join(chain.schema.key)}" if chain.schema.key else ""
        return f"<WhatIf {self.name} over {below}, level {chain.level}{keyed}: {', '.join(chain.schema.shown)}>"

    def _rows_schema(self) -> pa.Schema:
        return self.schema

    def _repr_html_(self) -> str:
        from strandline.report import SHOWN, first_rows, rows_html, schema_html

        try:
            shown = first_rows(self.relation())
        except StrandlineError:
            return schema_html(repr(self).strip("<>"), pa.schema([]))
        return rows_html(repr(self).strip("<>"), shown, f"the first {SHOWN} rows" if len(shown) == SHOWN else "")

    def differential(self) -> pa.Table:
        """The differential relation itself, as figures 7 to 10 show it: a `maxdate` that is null is yet to come."""
        with self._reader(None, None) as reader:
            tuples = reader.tuples(reader.chain.top)
            columns: dict[str, Any] = {}
            for name in reader.schema.names:
                columns[stored_name(name, [*columns])] = tuples.column(name)
        columns |= {STORED[name]: tuples.column(name) for name in (MINDATE, MAXDATE, LEVEL, TUPNUM)}
        infinite = pc.equal(tuples.column(MAXDATE), INFINITY)
        columns[STORED[MAXDATE]] = pc.if_else(infinite, None, tuples.column(MAXDATE))
        kinds = [Type(kind).name for kind in tuples.column(TYPE).to_pylist()]
        return pa.table({**columns, STORED[TYPE]: pa.array(kinds, pa.string())})

    # Changing

    def insert(self, rows: Any) -> int:
        """New rows; a key that is there already is an error. How many they were."""
        return run_transaction(self.home, f"insert into {self.name}", lambda here: insert(here.open(self.name), rows))

    def upsert(self, rows: Any) -> int:
        """Rows that replace those of the same key, or are new."""
        return run_transaction(self.home, f"upsert into {self.name}", lambda here: upsert(here.open(self.name), rows))

    def update(
        self,
        *,
        where: str | None = None,
        set: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> int:
        """Change columns of the rows that satisfy `where`: `set` gives SQL expressions, `values` plain values."""

        def work(here: Any) -> int:
            opened = here.open(self.name)
            return update(
                opened, assignments(opened.schema, set, values, params, f"updating {self.name}"), where, params
            )

        return run_transaction(self.home, f"update {self.name}", work)

    def delete(self, *, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
        """Delete the rows that satisfy `where`, or all; how many they were."""
        return run_transaction(
            self.home, f"delete from {self.name}", lambda here: delete(here.open(self.name), where, params)
        )

    def apply(self, changes: Changes | ChangeSet, *, lenient: bool = False) -> int:
        """Make the changes of a change set; with `lenient` it wins where it does not fit."""
        return run_transaction(
            self.home, f"apply to {self.name}", lambda here: apply(here.open(self.name), changes, lenient=lenient)
        )

    # Against its base

    def changes(self) -> Changes:
        """What it changes in the live relation below, as a change set."""
        with self._reader(None, None) as reader:
            return Changes.of(what_if_changes(reader))

    def changes_between(self, since: Any, until: Any = None) -> Changes:
        """What changed in its own rows from one state of the store to another, or to now, whichever level did it.

        The base, a level below and this one count alike. States are what `at=` takes: a name, a snapshot, a commit
        number, a datetime. `Store.changes(name, since=…)` is the same.
        """
        with self.home.state(since) as older, self.home.state(until) as newer:
            return Changes.of(changes_between(self.home.cache, self.name, older, newer))

    def conflicts(self) -> pa.Table:
        """Where the relation below has changed what this one changed, or has come to use one of its keys.

        `conflict` says how: `changed`, `deleted`, `re-created` or `collision`; `ours` and `theirs` are the rows.
        """
        with self._reader(None, None) as reader:
            return conflict_table(reader)

    def conflict_keys(self) -> list[tuple[Any, ...]]:
        """What `resolve` calls the conflicts, in their order: keys; without a key the numbers of the tuples.

        A delete whose key is also that of a conflict of another row has `DELETE` before it.
        """
        with self._reader(None, None) as reader:
            return compare(reader).names()

    def merge(self, *, resolve: Resolve = None) -> Changes:
        """Make its changes in the relation below, in one transaction; the change set that did. It then holds none.

        `resolve` says who wins where they conflict: `ours`, `theirs`, or for each key one of them.
        """
        return merge_what_if(self.home, self.name, resolve)

    def rebase(self, *, resolve: Resolve = "ours") -> int:
        """Settle conflicts without merging: ours stand as made on the rows below as they are now, or follow them again.

        How many conflicts there were.
        """
        return rebase(self.home, self.name, resolve)

    def purge(self, *, before: Any) -> int:
        """Forget what became invalid before a date; reads as of earlier dates are refused from then on."""
        return purge(self.home, self.name, before)

    def drop(self, *, with_children: bool = False) -> None:
        """Drop it; what-ifs that stand on it are refused, or dropped along with it."""
        drop(self.home, self.name, with_children=with_children)

    def _chain(self) -> WhatIfChain:
        with self.home.state() as view:
            return chain_of(view, self.home.cache, self.name)

    @contextmanager
    def _reader(self, as_of: Any, at: Any) -> Iterator[WhatIfReader]:
        with self.home.state() as view:
            chain = chain_of(view, self.home.cache, self.name)
            scan = int(view.commit) if as_of is None else commit_of(self.home, as_of, f"reading {self.name}")
            if at is None:
                yield WhatIfReader(chain, view, self.home.cache, scan=scan)
                return
            with self.home.state(at) as earlier:
                yield WhatIfReader(chain, view, self.home.cache, scan=scan, base_view=earlier)


def open_what_if(home: WhatIfHost, name: str) -> WhatIf:
    """An existing what-if; one whose table is gone can be dropped, and not read."""
    with home.state() as view:
        if name not in definitions(view, home.cache):
            chain_of(view, home.cache, name)
    return WhatIf(home, name)


def what_if_at(home: WhatIfHost, name: str, at: Any) -> WhatIfRelation:
    """A what-if as a whole state of the store has it: its changes, those below and the table, all of that state."""
    with home.hold(at) as snapshot:
        reader = relation_of(snapshot.view, home.cache, name, "").reader
        return what_if_relation(reader, reached(snapshot.view, home.storage), [snapshot.again()])


def what_if_readers(view: ReadView, cache: PageCache) -> dict[str, Callable[[], WhatIfReader]]:
    """The what-ifs of a state by name, to be read as that state has them."""

    def reader(name: str) -> WhatIfReader:
        return WhatIfReader(chain_of(view, cache, name), view, cache, scan=int(view.commit))

    return {name: partial(reader, name) for name in definitions(view, cache)}


def create_what_if(home: WhatIfHost, name: str, on: str) -> WhatIf:
    """A new what-if on a table or another what-if."""
    new_what_if(home, name, on)
    return WhatIf(home, name)

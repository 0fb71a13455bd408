"""What stands on the relations of a store, views and copies: dropping a view or a table together with it, and renaming
a column, which the views that read it follow.

These views and their copies keep their own names: in a view's text the table becomes a subquery that gives the column
its old name. Such a subquery is taken apart where the view is read, so the view is followed as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.errors import InUse, NotFound, StrandlineError
from strandline.replication import drop_rows
from strandline.tables import COPIES, VIEWS, TableTransaction, is_defined_here, names_meant
from strandline.values import parse_query
from strandline.views import (
    KnownViews,
    ViewHost,
    ViewRecord,
    drop_pins,
    end,
    id_of_rows,
    pins_of,
    put,
    read_views,
    relations_named,
    remove,
)


def views_above(known: KnownViews, relations: Sequence[str]) -> list[str]:
    """The views that stand on these relations, or on views that do, the oldest first."""
    below = set(relations)
    for name in known.records:
        if name not in below and any(_reads(known, name, one) for one in below):
            below.add(name)
    return [name for name in known.records if name in below - set(relations)]


@dataclass(frozen=True)
class Dropped:
    """Views that went, or would go, with what they stand on, and copies that were forgotten with them: their targets
    keep the rows that they have.
    """

    views: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


def drop_view(host: ViewHost, name: str, *, cascade: bool = False) -> Dropped:
    """Drop a view that nothing stands on or, with `cascade`, with all that does."""
    doing = f"dropping view {name!r}"
    with read_views(host) as known:
        if name not in known.records:
            listed = ", ".join(known.records) or "none"
            raise NotFound(f"there is no view {name!r}", doing=doing, hint=f"The views are: {listed}")
        with_it = standing_on(known, name)
    hint = "Drop those first, or say cascade=True (--cascade)"
    if with_it.copies and not cascade:
        raise InUse(f"there are copies of it: {', '.join(with_it.copies)}", doing=doing, hint=hint)
    if with_it.views and not cascade:
        raise InUse(f"views stand on it: {', '.join(with_it.views)}", doing=doing, hint=hint)
    return host.autocommit(lambda transaction: _drop_all(transaction, host, name))


def drop_table(host: ViewHost, name: str) -> Dropped:
    """Drop a table with the views that stand on it; their copies, and its own, are forgotten."""

    def work(transaction: TableTransaction) -> Dropped:
        went = _drop_all(transaction, host, name)
        transaction.drop_table(name)
        return went

    return host.autocommit(work)


def standing_on(known: KnownViews, name: str) -> Dropped:
    """The views that stand on a relation, and the copies of these and of itself."""
    views = views_above(known, [name])
    copies = [one.name for one in known.copies.values() if one.view in (name, *views)]
    return Dropped(tuple(views), tuple(copies))


def release_stored_rows(branch: ViewHost, *, keep: bool) -> None:
    """Before a branch is dropped: let go what it keeps, unseen by users, for rows of stored views, unless something
    else is in the way (`keep`, or versions that stand on it). Copies are.
    """
    with read_views(branch) as known:
        if known.copies:
            raise InUse(
                f"it has the copies {', '.join(known.copies)}",
                doing=f"dropping version {branch.name}",
                hint="Drop those first, or forget() them",
            )
        rows = [*(one.id for one in known.stored.values()), *map(id_of_rows, known.records)]
    if not keep and not branch.pages.pointer().forks:
        for one in rows:
            drop_pins(branch, one)


def _drop_all(transaction: TableTransaction, host: ViewHost, name: str) -> Dropped:
    with read_views(host) as known:
        went = standing_on(known, name)
        for view in (name, *went.views):
            if view in known.records:
                drop_rows(transaction, host, known, view)
                remove(transaction, VIEWS, view)
            if view in known.segments:
                end(transaction, known.state.view, view)
        for copy in went.copies:
            remove(transaction, COPIES, copy)
            transaction.dropped_snapshots += pins_of(host, known.copies[copy].id)
    return went


def _reads(known: KnownViews, view: str, name: str) -> bool:
    """Whether a view's text names a relation; where it can't be read any more, whether it may."""
    try:
        return name in known.named_by(view)
    except StrandlineError:
        return any(one.lower() == name.lower() for one in relations_named(known.records[view].sql))


def rename_column(host: ViewHost, table: str, old: str, new: str) -> tuple[str, ...]:
    """Renames a column in a transaction of its own; the views that got another text."""

    def work(transaction: TableTransaction) -> tuple[str, ...]:
        with read_views(host) as known:
            rewritten = [record for record in _followed(known, table, (old, new)) if record is not None]
            for record in rewritten:
                put(transaction, record, exists=True)
        transaction.rename_column(table, old, new)
        return tuple(record.name for record in rewritten)

    return host.autocommit(work)


def _followed(known: KnownViews, table: str, names: tuple[str, str]) -> list[ViewRecord | None]:
    """The views whose texts have to change, with the texts that they get."""
    state = known.state
    what_ifs = [one for one in state.names() if not state.is_table(one) and state.tables_below(one)[0] == table]
    if not state.is_table(table):
        return []
    columns = {one: state.record(one).shown for one in (table, *what_ifs)}
    # A name that another relation bears exactly means that one.
    others = {one: () for one in state.names() if one not in columns}
    return [_rewritten(record, {**others, **columns}, names) for record in known.records.values()]


def _rewritten(record: ViewRecord, columns: dict[str, tuple[str, ...]], names: tuple[str, str]) -> ViewRecord | None:
    """The view over subqueries in the place of these relations; None if it reads nothing that is renamed."""
    from sqlglot import exp

    tree = parse_query(record.sql, f"reading view {record.name!r}")
    meant = names_meant(tree)
    if meant is not None and names[0].lower() not in meant:
        return None
    changed = False
    for mention in list(tree.find_all(exp.Table)):
        alike = [one for one in columns if one.lower() == mention.name.lower()]
        relation = mention.name if mention.name in columns else alike[0] if alike else ""
        if columns.get(relation) and not is_defined_here(mention) and not _is_special(mention):
            mention.replace(_renaming(mention, relation, columns[relation], names))
            changed = True
    return replace(record, sql=tree.sql(dialect="duckdb")) if changed else None


def _is_special(mention: Any) -> bool:
    """Whether it says more than a name and an alias; such a text stays, and the renaming is refused."""
    alias = mention.args.get("alias")
    more = any(value for name, value in mention.args.items() if name not in ("this", "alias", "joins"))
    return more or bool(alias and alias.args.get("columns"))


def _renaming(mention: Any, relation: str, columns: tuple[str, ...], names: tuple[str, str]) -> Any:
    from sqlglot import exp

    old, new = names

    def shown(name: str) -> Any:
        here = exp.column(exp.to_identifier(new if name == old else name, quoted=True))
        return exp.alias_(here, name, quoted=True) if name == old else here

    query = exp.select(*map(shown, columns)).from_(exp.Table(this=exp.to_identifier(relation, quoted=True)))
    made = query.subquery(exp.to_identifier(mention.alias or mention.name, quoted=True))
    made.set("joins", mention.args.get("joins"))  # in parentheses, as DuckDB writes joins
    return made

"""A column of a table gets another name, and the views that read it follow: they and their copies keep their own names.

In a view's text the table becomes a subquery that gives the column its old name. Such a subquery is taken apart where
the view is read, so the view is followed as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.tables import TableTransaction, is_defined_here, names_meant
from strandline.values import parse_query
from strandline.views import KnownViews, ViewHost, ViewRecord, put, read_views


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
    more = any(value for name, value in mention.args.items() if name not in ("this", "alias"))
    return more or bool(alias and alias.args.get("columns"))


def _renaming(mention: Any, relation: str, columns: tuple[str, ...], names: tuple[str, str]) -> Any:
    from sqlglot import exp

    old, new = names

    def shown(name: str) -> Any:
        here = exp.column(exp.to_identifier(new if name == old else name, quoted=True))
        return exp.alias_(here, name, quoted=True) if name == old else here

    query = exp.select(*map(shown, columns)).from_(exp.Table(this=exp.to_identifier(relation, quoted=True)))
    return query.subquery(exp.to_identifier(mention.alias or mention.name, quoted=True))

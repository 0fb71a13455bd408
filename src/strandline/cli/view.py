"""`strandline view`: views of a store, kept at copies by their differences."""

from __future__ import annotations

import json
from typing import Any

import click

from strandline.cli.output import answer, emit_json, say, span, telling
from strandline.cli.store_access import STATE, also, count_of, show_rows, store_argument, tables_of, version_option

SHOWN = ("name", "form", "key", "stored", "maintain", "behind", "refresh_policy", "copies", "sql")


@click.group()
def view() -> None:
    """Views: queries whose copies are kept fresh by differences.

    \b
    Example:
      strandline view create SHOP cheap "select id, name from orders where price < 10"
      strandline replicate SHOP cheap duckdb:///cheap.duckdb#cheap
      strandline refresh SHOP cheap
      strandline view why SHOP cheap '{"id": 7, "price": 20}'
    """


@view.command()
@store_argument
@click.argument("name")
@click.argument("sql")
@click.option("--strict/--no-strict", default=True, help="Refuse what differences can't follow.  [default: strict]")
@click.option(
    "--maintain",
    type=click.Choice(["auto", "eager", "deferred"]),
    default="auto",
    show_default=True,
    help="When differences are computed: at each commit, at a refresh, or as costs less.",
)
@click.option(
    "--refresh-policy",
    type=click.Choice(["auto", "incremental", "incremental_strict", "full"]),
    default="auto",
    show_default=True,
    help="What a refresh of its copies may do: incremental_strict fails, and says why, if it has no difference.",
)
@click.option("--comment", default="", help="What the view is about.")
@click.option("--stored", is_flag=True, help="Keep its rows in the store: at each commit, or (deferred) by refresh.")
@click.option("--target-lag", metavar="TIME", help="Of stored rows: how long they may be behind: 10m, 1h.")
@version_option
@telling
def create(store: str, name: str, sql: str, version: str, as_json: bool, **given: Any) -> int:
    """Defines a view NAME by one SELECT, or anew.

    Joins of all kinds, groups, subqueries, windows and set operations are followed by differences; with --no-strict
    what is not (chance, the clock, what depends on the order of rows) is computed anew each time.

    The rows of a stored view stand in a table of its name, which is read like any other.

    \b
    Example:
      strandline view create SHOP cheap "select id, name from orders where price < 10"
      strandline view create SHOP totals "select state, count(*) as n from orders group by state" --stored
    """
    with tables_of(store, version) as held:
        made = held.view(name, sql, **given)
        definition = made.definition
        facts: dict[str, Any] = {"name": name, "form": definition.form, "key": list(definition.key)}
        facts |= {"columns": definition.schema.names, "regenerated": definition.regenerated}
        facts |= {"computed_whole": made.computed_whole}
        if given["stored"]:
            facts |= {"stored": True, "rows": made.status()["rows"]}
        if as_json:
            emit_json(facts)
            return 0
        keyed = f"by {', '.join(definition.key)}" if definition.key else "counted: its result has no key"
        say(f"{name}: {', '.join(definition.schema.names)}; {keyed}.")
        if definition.regenerated:
            say(f"It is computed anew each time: {definition.regenerated}.")
        if given["stored"]:
            kept = (
                "every commit keeps them" if made.status()["maintain"] == "eager" else "refresh brings them up to date"
            )
            say(f"Stored with {count_of(facts['rows'], 'row')}; {kept}.")
    return 0


@view.command(name="list")
@store_argument
@version_option
@telling
def list_(store: str, version: str, as_json: bool) -> int:
    """The views, the oldest first.

    \b
    Example:
      strandline view list SHOP
    """
    with tables_of(store, version) as held:
        views = [{**one.__dict__, "key": list(one.key)} for one in held.views()]
    if as_json:
        emit_json({"views": views})
    else:
        shown = [{**one, "key": ", ".join(one["key"]), "behind": span(one["behind"] or None)} for one in views]
        show_rows(SHOWN, [[one[name] for name in SHOWN] for one in shown])
        for one in views:
            if one["trouble"]:
                say(f"{one['name']} can't be read: {one['trouble']}.")
    return 0


@view.command()
@store_argument
@click.argument("name")
@click.option("--since", metavar="STATE", help=f"Say what the change since then takes of each: {STATE}.")
@version_option
@telling
def explain(store: str, name: str, since: str | None, version: str, as_json: bool) -> int:
    """Says how a view is kept by differences. Its operators are told, the result first, and how a change goes through
    each.

    \b
    Examples:
      strandline view explain SHOP totals
      strandline view explain SHOP totals --since monday
    """
    from strandline.pages import parse_at

    with tables_of(store, version) as held:
        lines = held.view(name).explain(since=parse_at(held.pages, since)).splitlines()
    if as_json:
        emit_json({"name": name, "lines": lines})
    else:
        for line in lines:
            click.echo(line)
    return 0


@view.command()
@store_argument
@click.argument("name")
@click.argument("row")
@click.option("--table", "relation", help="The table that the row belongs to, where the view reads several.")
@version_option
@telling
def why(store: str, name: str, row: str, relation: str | None, version: str, as_json: bool) -> int:
    """Says whether a ROW (JSON) can matter to a view, or why not. The row is one that comes or goes.

    Exit code 0: it can; 1: it is irrelevant, with the proof.

    \b
    Example:
      strandline view why SHOP cheap '{"id": 7, "price": 20}'
    """
    try:
        change: Any = json.loads(row)
    except ValueError as error:
        raise click.UsageError(f"ROW is no JSON: {error}") from None
    if not isinstance(change, dict):
        raise click.UsageError("ROW must be a JSON object, as in '{\"id\": 7}'")
    with tables_of(store, version) as held:
        (verdict,) = held.view(name).why(change, relation)
    if as_json:
        emit_json({"relation": verdict.relation, "relevant": verdict.relevant, "proof": list(verdict.proof)})
    else:
        click.echo(f"{verdict}.")
    return 0 if verdict.relevant else 1


@view.command()
@store_argument
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the views that stand on it, too, and forget the copies of all.")
@version_option
@telling
def drop(store: str, name: str, cascade: bool, version: str, as_json: bool) -> int:
    """Drops a view that no copy and no other view stands on.

    With --cascade those go with it; the targets of copies keep the rows that they have.

    \b
    Example:
      strandline view drop SHOP cheap
    """
    with tables_of(store, version) as held:
        went = held.drop_view(name, cascade=cascade)
    return answer(
        {"dropped": name, **({"views": went.views, "copies": went.copies} if cascade else {})},
        f"{name} is dropped{also(went.views, went.copies)}.",
        as_json=as_json,
    )

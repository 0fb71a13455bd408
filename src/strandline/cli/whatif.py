"""`strandline whatif`: what-if tables over a live base."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.inputs import names_of, source_of, source_options
from strandline.cli.output import (
    answer,
    emit_json,
    pairs,
    plain,
    say,
    takes_stdout,
    telling,
    write_changes,
    writing_options,
)
from strandline.cli.store_access import (
    STATE,
    count_of,
    flat,
    show_rows,
    show_table,
    store_argument,
    tables_of,
    version_option,
)
from strandline.errors import ChangesError, InputError

if TYPE_CHECKING:
    from strandline.store import WhatIf

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def whatif() -> None:
    """What-if tables: changes kept apart, over a live table.

    A what-if can be queried, compared and viewed by its name like a table.

    \b
    Example: would the budget balance if senior salaries were cut by a fifth?
      strandline whatif new SHOP cut staff
      strandline whatif update SHOP cut --where "grade >= 9" --set "salary=salary * 0.8"
      strandline query SHOP "SELECT sum(salary) FROM cut"
      strandline whatif changes SHOP cut
      strandline whatif merge SHOP cut
    """


def _on_a_what_if(function: F) -> F:
    """`STORE NAME`, which every command but the list has."""
    return store_argument(click.argument("name")(function))


def _limit(what: str) -> Callable[[F], F]:
    words = f"{what} to show; 0 shows all, and so does --json."
    return click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=words)


_resolving = click.option(
    "--resolve",
    multiple=True,
    metavar="[KEY=]SIDE",
    help="Who wins where the two conflict, ours or theirs: everywhere, or for one key; repeat it. A key is written as "
    "whatif conflicts prints it; one of several columns with commas, or as a JSON array.",
)


@whatif.command()
@_on_a_what_if
@click.argument("on")
@version_option
@telling
def new(store: str, name: str, on: str, as_json: bool, version: str) -> int:
    """Makes a what-if NAME over ON: a table, or another what-if.

    \b
    Examples:
      strandline whatif new shop cut staff
      strandline whatif new shop deeper cut
    """
    with tables_of(store, version) as held:
        known = {one.name for one in held.what_ifs()}
        made = held.what_if(on).what_if(name) if on in known else held.table(on).what_if(name)
        return answer({"name": name, "on": on, "level": made.level}, f"{name} stands on {on}.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.option("--where", help="Which rows: an SQL condition; all of them without it.")
@click.option("--set", "sets", multiple=True, required=True, metavar="COLUMN=SQL", help="A new value, in SQL.")
@version_option
@telling
def update(store: str, name: str, where: str | None, sets: tuple[str, ...], as_json: bool, version: str) -> int:
    """Changes columns of rows.

    \b
    Example:
      strandline whatif update shop cut --where "grade >= 9" --set "salary=salary * 0.8"
    """
    with _what_if(store, version, name) as held:
        count = held.update(where=where, set=pairs(sets, "--set"))
        return answer({"updated": count}, f"{count_of(count, 'row')} updated in {name}.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.argument("source", type=click.Path())
@click.option("--upsert", is_flag=True, help="Replace rows whose key is there already.")
@source_options
@version_option
@telling
def insert(store: str, name: str, source: str, upsert: bool, as_json: bool, version: str, **given: Any) -> int:
    """Adds the rows of SOURCE, which is whatever `strandline load` takes.

    \b
    Example:
      strandline whatif insert shop cut newcomers.csv
    """
    with _what_if(store, version, name) as held, ExitStack() as stack:
        rows = source_of(source, given, stack)
        count = held.upsert(rows) if upsert else held.insert(rows)
        return answer({"inserted": count}, f"{count_of(count, 'row')} put into {name}.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.option("--where", required=True, help="Which rows: an SQL condition; true for all of them.")
@version_option
@telling
def delete(store: str, name: str, where: str, as_json: bool, version: str) -> int:
    """Deletes rows.

    \b
    Example:
      strandline whatif delete shop cut --where "grade <= 2"
    """
    with _what_if(store, version, name) as held:
        count = held.delete(where=where)
        return answer({"deleted": count}, f"{count_of(count, 'row')} deleted from {name}.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.option("--where", help="Which rows: an SQL condition.")
@click.option("--columns", multiple=True, help="Show only these columns; repeat, or separate by commas.")
@click.option("--as-of", metavar="STATE", help=f"Show the changes made up to then: {STATE}.")
@click.option("--at", metavar="STATE", help=f"Show the table below in an older state: {STATE}.")
@_limit("Rows")
@version_option
@telling
def show(
    store: str, name: str, columns: tuple[str, ...], limit: int, as_json: bool, version: str, **how: str | None
) -> int:
    """Shows the rows.

    \b
    Example:
      strandline whatif show shop cut
    """
    from strandline.pages import parse_at

    with _what_if(store, version, name) as held:
        as_of, at = (parse_at(held.home.pages, how[one]) for one in ("as_of", "at"))
        rows = held.to_arrow(where=how["where"], columns=names_of(columns) or None, as_of=as_of, at=at)
    if as_json:
        emit_json({"name": name, "count": len(rows), "rows": rows.to_pylist()})
        return 0
    show_table(rows.slice(0, limit or None))
    say(f"{count_of(len(rows), 'row')}.")
    return 0


@whatif.command()
@_on_a_what_if
@writing_options
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Changes to show.")
@version_option
@telling
def changes(store: str, name: str, limit: int, as_json: bool, version: str, **given: Any) -> int:
    """Shows what the what-if changes in the relation below it. Exit 0: nothing, 1: something.

    \b
    Examples:
      strandline whatif changes shop cut --json
      strandline whatif changes shop cut --out cut.changes
    """
    piped = takes_stdout(given, as_json=as_json)
    with _what_if(store, version, name) as held:
        changes = held.changes()
    summary = changes.summary()
    write_changes(changes, {**given, "limit": limit}, otherwise="changes")
    if as_json:
        counts = {"inserted": summary.inserted, "updated": summary.updated, "deleted": summary.deleted}
        emit_json({**counts, "out": given["out"]})
    else:
        if not piped:
            show_table(changes.to_arrow().slice(0, limit))
        say(f"{summary.inserted:,} inserted, {summary.updated:,} updated, {summary.deleted:,} deleted.")
    return 1 if summary.changed else 0


@whatif.command()
@_on_a_what_if
@_limit("Conflicts")
@version_option
@telling
def conflicts(store: str, name: str, limit: int, as_json: bool, version: str) -> int:
    """Shows where others changed what the what-if changed. Exit 0: nowhere, 1: somewhere.

    \b
    Example:
      strandline whatif conflicts shop cut
    """
    with _what_if(store, version, name) as held:
        conflicts = held.conflicts()
    if as_json:
        emit_json({"count": len(conflicts), "conflicts": conflicts.to_pylist()})
    else:
        shown = conflicts.slice(0, limit or None)
        show_table(shown)
        say(f"{len(shown):,} of {count_of(len(conflicts), 'conflict')}.")
    return 1 if len(conflicts) else 0


@whatif.command()
@_on_a_what_if
@_resolving
@version_option
@telling
def merge(store: str, name: str, resolve: tuple[str, ...], as_json: bool, version: str) -> int:
    """Makes the changes in the relation below, in one transaction.

    \b
    Examples:
      strandline whatif merge shop cut --resolve ours
      strandline whatif merge shop cut --resolve bob=ours --resolve ann=theirs
    """
    with _what_if(store, version, name) as held, _conflicts_told(held, f"merging {name}", resolve) as chosen:
        summary = held.merge(resolve=chosen).summary()
    record: dict[str, object] = {"inserted": summary.inserted, "updated": summary.updated, "deleted": summary.deleted}
    words = f"Merged {name}: {summary.inserted:,} inserted, {summary.updated:,} updated, {summary.deleted:,} deleted."
    return answer(record, words, as_json=as_json)


@whatif.command()
@_on_a_what_if
@_resolving
@version_option
@telling
def rebase(store: str, name: str, resolve: tuple[str, ...], as_json: bool, version: str) -> int:
    """Settles conflicts without merging. Ours stand on the rows below as they are now, or follow them again.

    \b
    Example:
      strandline whatif rebase shop cut --resolve theirs
    """
    with _what_if(store, version, name) as held, _conflicts_told(held, f"rebasing {name}", resolve) as chosen:
        count = held.rebase(resolve=chosen)
        return answer({"settled": count}, f"{count_of(count, 'conflict')} settled in {name}.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.option("--before", required=True, metavar="STATE", help=f"{STATE[:1].upper()}{STATE[1:]}.")
@version_option
@telling
def purge(store: str, name: str, before: str, as_json: bool, version: str) -> int:
    """Forgets what became invalid before a state.

    \b
    Example:
      strandline whatif purge shop cut --before monday
    """
    from strandline.pages import parse_at

    with _what_if(store, version, name) as held:
        count = held.purge(before=parse_at(held.home.pages, before))
        return answer({"purged": count}, f"{count_of(count, 'tuple')} forgotten.", as_json=as_json)


@whatif.command()
@_on_a_what_if
@click.option("--with-children", is_flag=True, help="Drop what stands on it too.")
@version_option
@telling
def drop(store: str, name: str, with_children: bool, as_json: bool, version: str) -> int:
    """Drops a what-if; the relation below stays as it is.

    \b
    Example:
      strandline whatif drop shop cut
    """
    with _what_if(store, version, name) as held:
        held.drop(with_children=with_children)
        return answer({"dropped": name}, f"{name} is dropped.", as_json=as_json)


@whatif.command("list")
@store_argument
@version_option
@telling
def list_(store: str, version: str, as_json: bool) -> int:
    """Lists the what-ifs of a store.

    \b
    Example:
      strandline whatif list shop
    """
    with tables_of(store, version) as held:
        listed = held.what_ifs()
    if as_json:
        emit_json({"what_ifs": [vars(one) for one in listed]})
    else:
        rows = [(one.name, one.below, one.table, one.level, one.tuples) for one in listed]
        show_rows(("name", "stands on", "table", "level", "tuples"), rows)
    return 0


@contextmanager
def _what_if(path: str, version: str, name: str) -> Iterator[WhatIf]:
    with tables_of(path, version) as store:
        yield store.what_if(name)


@contextmanager
def _conflicts_told(held: WhatIf, doing: str, given: tuple[str, ...]) -> Iterator[Any]:
    """What `resolve=` is to be: a side, or one for each key. Conflicts that are left open are told as one would write
    them here.
    """
    chosen: Any = given[0] if given else None
    if given and (len(given) > 1 or "=" in chosen):
        chosen = _by_key(held, doing, given)
    try:
        yield chosen
    except ChangesError:
        resolved = chosen if isinstance(chosen, dict) else {}
        left = [_written(key) for key in held.conflict_keys() if key not in resolved]
        more = f" and {len(left) - _TOLD:,} more" if len(left) > _TOLD else ""
        raise ChangesError(
            f"the relation below has changed too: {'; '.join(left[:_TOLD])}{more}",
            doing=doing,
            hint=f"{_LOOK}, and give --resolve ours, --resolve theirs, or --resolve KEY=SIDE for each key",
        ) from None


_TOLD = 10
_LOOK = "See strandline whatif conflicts"


def _by_key(held: WhatIf, doing: str, given: tuple[str, ...]) -> dict[tuple[Any, ...], str]:
    """A side for each key, which may have any character in it; keys that read alike are told apart as JSON arrays."""
    by_array = {_array(key): key for key in held.conflict_keys()}
    by_text: dict[str, list[tuple[Any, ...]]] = {}
    for key in by_array.values():
        by_text.setdefault(_written(key), []).append(key)
    chosen: dict[tuple[Any, ...], str] = {}
    for text in given:
        written, separator, side = text.rpartition("=")
        if not separator:
            raise click.UsageError(
                f"--resolve takes KEY=SIDE, or a single SIDE for all conflicts, not {text!r} and more"
            )
        array = _as_array(written)
        keys = [by_array[array]] if array in by_array else by_text.get(written, [])
        if len(keys) != 1:
            why = "means several conflicts" if keys else "is not among the conflicts"
            hint = f"Write one of these: {', '.join(map(_array, keys))}" if keys else _LOOK
            raise InputError(f"{written!r} {why}", doing=doing, hint=hint)
        if chosen.setdefault(keys[0], side) != side:
            raise InputError(f"{written!r} is resolved in two ways", doing=doing, hint="Say ours or theirs")
    return chosen


def _written(key: tuple[Any, ...]) -> str:
    """A key as `whatif conflicts` prints it, its columns with commas between them."""
    return ",".join(map(flat, key))


def _array(key: Iterable[Any]) -> str:
    return json.dumps(plain(key), ensure_ascii=False)


def _as_array(text: str) -> str:
    """A JSON array as `_array` writes it; other texts as they are."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    return _array(values) if isinstance(values, list) else text

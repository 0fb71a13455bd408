"""`strandline snapshot`, `snapshots`, `branch`, `branches` and `drop`: named states and versions of a store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import click

from strandline.cli.inputs import names_of
from strandline.cli.output import answer, emit_json, say, telling
from strandline.cli.store_access import (
    STATE,
    also,
    check_name,
    check_table,
    control,
    iso_time,
    local_time,
    show_rows,
    storage_of,
    store_argument,
    tables_of,
    version_of,
    version_option,
)
from strandline.engine import byte_count
from strandline.errors import InputError


@click.command()
@store_argument
@click.argument("name", required=False)
@click.option(
    "--table",
    "--tables",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Keep only this table; repeat, or separate by commas.",
)
@version_option
@telling
def snapshot(store: str, name: str | None, tables: tuple[str, ...], version: str, as_json: bool) -> int:
    """Keeps the present state of STORE under NAME. It stays until it is dropped; without NAME it is called by the time.

    \b
    Examples:
      strandline snapshot shop monday
      strandline snapshot shop --tables orders,items
    """
    chosen = names_of(tables)
    name = name or dt.datetime.now().strftime("%Y-%m-%dT%H.%M.%S")
    with control(store) as pages:
        opened = version_of(pages, version)
        domains = {entry.name: entry.domain for entry in opened.refresh_if_idle().domains()}
        for table in chosen:
            check_name(sorted(domains), table, "table")
        record = opened.name_snapshot(name, domains=[domains[table] for table in chosen] if chosen else None)
    if as_json:
        emit_json({"snapshot": name, "commit": record.commit, "version": version, "tables": chosen or None})
    else:
        of = f" of {', '.join(chosen)}" if chosen else ""
        say(f"The snapshot {name}{of} keeps the state of commit {record.commit}.")
    return 0


@click.command()
@store_argument
@version_option
@telling
def snapshots(store: str, version: str, as_json: bool) -> int:
    """The snapshots of a branch, oldest first. States that copies stand at are told by `space` and `replicas`.

    \b
    Example:
      strandline snapshots shop
    """
    from strandline.pages import is_own_name

    with control(store) as pages:
        opened = version_of(pages, version)
        names = {entry.domain: entry.name for entry in opened.refresh_if_idle().domains()}
        # Views keep the states that their copies stand at.
        records = [one for one in opened.snapshots() if not is_own_name(one.name)]
    rows = []
    for one in records:
        held = None if one.domains is None else [names.get(domain, f"(dropped: {domain})") for domain in one.domains]
        rows.append((one, sorted(held) if held is not None else None))
    if as_json:
        listed = [
            {"name": one.name, "commit": one.commit, "taken": iso_time(one.taken), "tables": held} for one, held in rows
        ]
        emit_json({"version": version, "snapshots": listed})
        return 0
    show_rows(
        ("name", "commit", "taken", "tables"),
        [
            (one.name, one.commit, local_time(one.taken), "all" if held is None else ", ".join(held))
            for one, held in rows
        ],
    )
    return 0


@click.command()
@store_argument
@click.argument("name")
@click.option("--at", metavar="STATE", help=f"Stand on an older state: {STATE}.")
@click.option("--of", "parent", metavar="BRANCH", default="main", show_default=True, help="The branch to stand on.")
@telling
def branch(store: str, name: str, at: str | None, parent: str, as_json: bool) -> int:
    """Makes the branch NAME of STORE. A branch can be changed without touching the others.

    \b
    Examples:
      strandline branch shop idea
      strandline branch shop idea --at monday
    """
    from strandline.pages import parse_at, state_at

    with control(store) as pages:
        base = version_of(pages, parent)
        if at is None:
            made = pages.fork(name, parent=parent)
        else:
            with state_at(base, parse_at(base, at)) as state:
                made = pages.fork(name, parent=parent, of=state)
        commit = made.pointer().commit
    return answer(
        {"branch": name, "of": parent, "commit": commit},
        f"The branch {name} stands on commit {commit} of {parent}.",
        as_json=as_json,
    )


@click.command()
@store_argument
@telling
def branches(store: str, as_json: bool) -> int:
    """The branches of STORE, where each stands, and on what.

    \b
    Example:
      strandline branches shop
    """
    with control(store) as pages:
        pointers = {name: pages.version(name).pointer() for name in sorted(pages.versions())}
    by_object = {pointer.object: name for name, pointer in pointers.items()}
    rows = [
        (
            name,
            pointer.commit,
            None if pointer.base is None else by_object.get(pointer.base.parent),
            None if pointer.base is None else pointer.base.commit,
        )
        for name, pointer in pointers.items()
    ]
    if as_json:
        names = ("name", "commit", "of", "from")
        emit_json({"branches": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        show_rows(("name", "commit", "of", "from commit"), rows)
    return 0


@click.command()
@store_argument
@click.argument("kind", type=click.Choice(["snapshot", "branch", "table"]))
@click.argument("name")
@click.option("--confirm", is_flag=True, help="Really drop it; without, only what would happen is said.")
@click.option("--cascade", is_flag=True, help="Of a table: drop the views that stand on it, too; forget their copies.")
@version_option
@telling
def drop(store: str, kind: str, name: str, version: str, as_json: bool, *, confirm: bool, cascade: bool) -> int:
    """Drops a snapshot, a branch or a table. What nobody else sees is freed.

    Without --confirm nothing is dropped. A table that is dropped stays readable in the snapshots that hold it. A table
    that views stand on is refused with their names, or they go with it (--cascade).

    \b
    Examples:
      strandline drop shop snapshot monday
      strandline drop shop branch idea --confirm
    """
    if cascade and kind != "table":
        raise click.UsageError("--cascade is for tables")
    if kind == "table":
        with tables_of(store, version) as opened:
            check_table(opened, name, f"dropping the table {name}")
    freed = _freed(store, kind, name, version)
    views, copies = _with_it(store, name, version) if cascade else ((), ())
    if confirm:
        _drop(store, kind, name, version, cascade=cascade)
    record = {"kind": kind, "name": name, "dropped": confirm, "bytes": freed}
    if as_json:
        emit_json(record | ({"views": views, "copies": copies} if cascade else {}))
    elif confirm:
        say(f"The {kind} {name} is dropped; it alone held {byte_count(freed)}{also(views, copies)}.")
    else:
        size = byte_count(freed) + also(views, copies)
        say(f"Would drop the {kind} {name}, which alone holds {size}. Nothing was done; add --confirm to do it.")
    return 0


def _with_it(store: str, name: str, version: str) -> tuple[Sequence[str], Sequence[str]]:
    """The views that stand on a table, and the copies of these and of itself."""
    from strandline.store import standing_on
    from strandline.views import read_views

    with tables_of(store, version) as opened, read_views(opened) as known:
        dependents = standing_on(known, name)
        return dependents.views, dependents.copies


def _freed(store: str, kind: str, name: str, version: str) -> int:
    """How many bytes only this one holds; an error when it is not there."""
    from strandline.pages import is_own_name, space_held

    with control(store) as pages:
        if kind == "branch":
            version_of(pages, name)
            if name == "main":
                raise InputError(
                    "main can't be dropped", doing="dropping main", hint="Delete the store's folder instead"
                )
        elif kind == "snapshot":
            named = [one.name for one in version_of(pages, version).snapshots()]
            check_name([one for one in named if not is_own_name(one)], name, "snapshot")
        else:
            named = sorted(one.name for one in version_of(pages, version).refresh_if_idle().domains())
            check_name([one for one in named if not is_own_name(one)], name, "table")

    storage = storage_of(store)
    if kind == "branch":
        return sum(one.own for one in space_held(storage, by=["version"]) if one.version == name)
    snapshot, table = (name, None) if kind == "snapshot" else ("", name)
    return sum(
        one.own
        for one in space_held(storage)
        if (one.version, one.snapshot, one.fork) == (version, snapshot, "") and table in (None, one.table)
    )


def _drop(store: str, kind: str, name: str, version: str, *, cascade: bool) -> None:
    if kind == "table":
        with tables_of(store, version) as opened:
            opened.drop_table(name, cascade=cascade)
        return
    with control(store) as pages:
        if kind == "branch":
            pages.drop_version(name)
        else:
            version_of(pages, version).drop_snapshot(name)

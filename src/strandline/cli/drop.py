"""`strandline drop`: a snapshot, a branch or a table."""

from __future__ import annotations

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import (
    control,
    found,
    json_option,
    size,
    storage_of,
    store_argument,
    tables_of,
    version_of,
    version_option,
)
from strandline.errors import InputError


@click.command()
@store_argument
@click.argument("kind", type=click.Choice(["snapshot", "branch", "table"]))
@click.argument("name")
@click.option("--confirm", is_flag=True, help="Really drop it; without, only what would happen is said.")
@version_option
@json_option
def drop(store: str, kind: str, name: str, confirm: bool, version: str, as_json: bool) -> int:
    """Drops a snapshot, a branch or a table; what nobody else sees is freed.

    Without --confirm nothing is dropped. A table that is dropped stays readable in the snapshots that hold it.

    \b
    Examples:
      strandline drop shop snapshot monday
      strandline drop shop branch idea --confirm
    """
    freed = _freed(store, kind, name, version)
    if confirm:
        _drop(store, kind, name, version)
    if as_json:
        emit_json({"kind": kind, "name": name, "dropped": confirm, "bytes": freed})
    elif confirm:
        say(f"The {kind} {name} is dropped; it alone held {size(freed)}.")
    else:
        say(f"Would drop the {kind} {name}, which alone holds {size(freed)}. Nothing was done; add --confirm to do it.")
    return 0


def _freed(store: str, kind: str, name: str, version: str) -> int:
    """How many bytes nobody else holds; whether the thing is there is found out on the way."""
    from strandline.pages import space

    with control(store) as pages:
        if kind == "branch":
            version_of(pages, name)
            if name == "main":
                raise InputError(
                    "main can't be dropped", doing="Dropping main", hint="Delete the store's folder instead"
                )
        elif kind == "snapshot":
            found([one.name for one in version_of(pages, version).snapshots()], name, "snapshot")
        else:
            found(sorted(one.name for one in version_of(pages, version).look().domains()), name, "table")

    storage = storage_of(store)
    if kind == "branch":
        return sum(one.own for one in space(storage, by=["version"]) if one.version == name)
    snapshot, table = (name, None) if kind == "snapshot" else ("", name)
    return sum(
        one.own
        for one in space(storage)
        if (one.version, one.snapshot, one.fork) == (version, snapshot, "") and table in (None, one.table)
    )


def _drop(store: str, kind: str, name: str, version: str) -> None:
    if kind == "table":
        with tables_of(store, version) as opened:
            opened.drop_table(name)
        return
    with control(store) as pages:
        if kind == "branch":
            pages.drop_version(name)
        else:
            version_of(pages, version).drop_snapshot(name)

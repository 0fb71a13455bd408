"""`strandline snapshot`: a state kept under a name."""

from __future__ import annotations

import datetime as dt

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import control, found, json_option, store_argument, version_of, version_option


@click.command()
@store_argument
@click.argument("name", required=False)
@click.option("--tables", multiple=True, help="Keep only these tables; repeat, or separate by commas.")
@version_option
@json_option
def snapshot(store: str, name: str | None, tables: tuple[str, ...], version: str, as_json: bool) -> int:
    """Keeps the present state of STORE under NAME (default: the present time) until it is dropped.

    \b
    Examples:
      strandline snapshot shop monday
      strandline snapshot shop --tables orders,items
    """
    chosen = [table for text in tables for table in text.split(",") if table]
    name = name or dt.datetime.now().strftime("%Y-%m-%dT%H.%M.%S")
    with control(store) as pages:
        opened = version_of(pages, version)
        domains = {entry.name: entry.domain for entry in opened.look().domains()}
        for table in chosen:
            found(sorted(domains), table, "table")
        record = opened.name_snapshot(name, domains=[domains[table] for table in chosen] if chosen else None)
    if as_json:
        emit_json({"snapshot": name, "commit": record.commit, "version": version, "tables": chosen or None})
    else:
        of = f" of {', '.join(chosen)}" if chosen else ""
        say(f"The snapshot {name}{of} keeps the state of commit {record.commit}.")
    return 0

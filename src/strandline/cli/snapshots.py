"""`strandline snapshots`: the named states."""

from __future__ import annotations

import click

from strandline.cli.output import emit_json
from strandline.cli.stores import (
    control,
    instant,
    json_option,
    show_rows,
    store_argument,
    version_of,
    version_option,
    when,
)


@click.command()
@store_argument
@version_option
@json_option
def snapshots(store: str, version: str, as_json: bool) -> int:
    """The snapshots of a branch, oldest first. States that copies stand at are told by `space` and `replicas`.

    \b
    Example:
      strandline snapshots shop
    """
    with control(store) as pages:
        opened = version_of(pages, version)
        names = {entry.domain: entry.name for entry in opened.look().domains()}
        # Snapshots named `_…` are not users': views keep the states that their copies stand at.
        records = [one for one in opened.snapshots() if not one.name.startswith("_")]
    rows = []
    for one in records:
        held = None if one.domains is None else [names.get(domain, f"(dropped: {domain})") for domain in one.domains]
        rows.append((one, sorted(held) if held is not None else None))
    if as_json:
        listed = [
            {"name": one.name, "commit": one.commit, "taken": instant(one.taken), "tables": held} for one, held in rows
        ]
        emit_json({"version": version, "snapshots": listed})
        return 0
    show_rows(
        ("name", "commit", "taken", "tables"),
        [(one.name, one.commit, when(one.taken), "all" if held is None else ", ".join(held)) for one, held in rows],
    )
    return 0

"""`strandline log`: what happened to a store."""

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
@click.option("--limit", type=int, default=20, show_default=True, help="Entries to show; 0 shows all.")
@version_option
@json_option
def log(store: str, limit: int, version: str, as_json: bool) -> int:
    """What happened to a branch, newest first: commits, snapshots, branches, drops.

    \b
    Example:
      strandline log shop --limit 5
    """
    with control(store) as pages:
        entries = version_of(pages, version).log()[::-1]
    entries = entries if limit <= 0 else entries[:limit]
    if as_json:
        emit_json(
            {
                "version": version,
                "log": [
                    {"commit": one.commit, "when": instant(one.when), "kind": one.kind, "message": one.message}
                    for one in entries
                ],
            }
        )
        return 0
    show_rows(("commit", "when", "what", "message"), [(e.commit, when(e.when), e.kind, e.message) for e in entries])
    return 0

"""`strandline restore`: a store, a branch or tables out of dumps."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.options import pairs, running
from strandline.cli.output import emit_json, say
from strandline.cli.stores import instant, several, size, when


@click.command()
@click.argument("target", metavar="TARGET", type=click.Path())
@click.argument("path", metavar="PATH", type=click.Path())
@click.option("--at", metavar="WHEN", help="A dump's id, or a time: the last dump taken by then.  [default: the last]")
@click.option("--version", "version", metavar="NAME", help="This branch only, as the new store's main.")
@click.option("--table", "tables", multiple=True, metavar="NAME[=NEW]", help="This table only; may be repeated.")
@click.option("--branch", metavar="NAME", help="All tables, as a new branch of a store that is there.")
@click.option("--key-file", type=click.Path(), help="The key of encrypted dumps; else STRANDLINE_DUMP_KEY.")
@running
def restore(
    target: str,
    path: str,
    at: str | None,
    version: str | None,
    tables: tuple[str, ...],
    branch: str | None,
    key_file: str | None,
    runner: str,
    as_json: bool,
) -> int:
    """Restores a store from the dumps at TARGET to PATH. Every checksum is verified.

    A whole store needs an empty PATH. Tables go into a store that is there, under a name that is free, or into a new
    one; a branch with all tables goes into a store that is there. A restore that was interrupted is gone on with by the
    same command.

    \b
    Examples:
      strandline restore backups shop2
      strandline restore backups shop2 --at "2026-10-05 12:00"
      strandline restore backups shop --table orders=orders_monday
      strandline restore backups shop --at "2026-10-05 12:00" --branch monday
    """
    from strandline.dumps import restore as bring_back

    chosen: dict[str, str] = {}
    for text in tables:
        chosen |= pairs([text], "--table") if "=" in text else {text: text}
    what: dict[str, Any] = {"at": _meant(at), "version": version, "tables": chosen or None, "branch": branch}
    done = bring_back(target, path, key_file=key_file, runner=runner, **what)
    if as_json:
        emit_json({**asdict(done), "taken": instant(done.taken)})
        return 0
    place = f"{', '.join(done.tables)} in {path}" if done.tables else path
    place += f", branch {branch}" if branch else ""
    say(f"{place}: as of {when(done.taken)}, from {' → '.join(done.chain)}.")
    say(f"{several(done.pages, 'page')}, {size(done.bytes)}, every checksum verified, in {done.seconds:.1f} s.")
    return 0


def _meant(at: str | None) -> str | dt.datetime | None:
    if at is None or "-L" in at:
        return at
    try:
        return dt.datetime.fromisoformat(at)
    except ValueError:
        return at

"""`strandline dump`: a dump of a store, while others work on it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from strandline.cli.options import running
from strandline.cli.output import emit_json, say
from strandline.cli.stores import control, instant, several, size, store_argument, when


@click.command()
@store_argument
@click.argument("target", metavar="TARGET", type=click.Path())
@click.option("--level", type=int, default=0, show_default=True, help="0: everything; n: changes since a lower level.")
@click.option("--due", is_flag=True, help="The level that is due by the schedule; nothing when none is.")
@click.option("--schedule", metavar="LEVELS", help="Levels by calendar.  [default: weekly=0, daily=1, hourly=2]")
@click.option("--table", "tables", multiple=True, metavar="NAME", help="This table only; may be repeated.")
@click.option("--version", "version", metavar="NAME", help="This branch only.")
@click.option("--key-file", type=click.Path(), help="Encrypt with the key in this file; else STRANDLINE_DUMP_KEY.")
@click.option("--hurry", is_flag=True, help="At full speed, even while writers commit.")
@running
def dump(
    store: str,
    target: str,
    level: int,
    due: bool,
    schedule: str | None,
    tables: tuple[str, ...],
    version: str | None,
    key_file: str | None,
    hurry: bool,
    runner: str,
    as_json: bool,
) -> int:
    """Dumps STORE to TARGET, a folder or an s3:// URL: everything, or what changed since the last lower level.

    Writers go on meanwhile; while they commit, the dump works a twentieth of the time. One that was interrupted is gone
    on with.

    \b
    Examples:
      strandline dump shop backups
      strandline dump shop backups --level 1
      strandline dump shop s3://bucket/backups --due --schedule "weekly=0, daily=1"
    """
    from strandline.dumps import SCHEDULE, Dumps
    from strandline.dumps import dump as make

    if due and (tables or version):
        raise click.UsageError("--due dumps the whole store; leave --table and --version out")
    with control(store) as pages:
        pages.start_heart()
        if due:
            found = Dumps(target, key_file=key_file).due(pages, schedule or SCHEDULE)
            if found is None:
                if as_json:
                    emit_json({"due": None})
                else:
                    say("No dump is due.")
                return 0
            level = found
        scope: dict[str, Any] = {"tables": tables or None, "version": version}
        made = make(pages, target, level=level, key_file=key_file, runner=runner, hurry=hurry, **scope)
    if as_json:
        emit_json({**asdict(made), "taken": instant(made.taken)})
        return 0
    if made.notice:
        say(made.notice)
    upon = f", upon {made.parent}" if made.parent else ""
    say(f"{made.id}: level {made.level} as of {when(made.taken)}{upon}.")
    say(f"{several(made.pages, 'page')}, {size(made.bytes)}, {made.freed:,} freed since, in {made.seconds:.1f} s.")
    return 0

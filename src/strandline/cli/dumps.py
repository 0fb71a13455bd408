"""`strandline dump`, `dumps` and `restore`: dumps of a store, what is at a target, and stores or tables from it."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.inputs import names_of
from strandline.cli.output import answer, console, emit_json, pairs, running, say, telling
from strandline.cli.store_access import control, count_of, iso_time, local_time, store_argument
from strandline.engine import byte_count

if TYPE_CHECKING:
    from strandline.dumps import DumpEntry, Dumps, Pruned


@click.command()
@store_argument
@click.argument("target", metavar="TARGET", type=click.Path())
@click.option("--level", type=int, default=0, show_default=True, help="0: everything; n: changes since a lower level.")
@click.option("--due", is_flag=True, help="The level that is due by the schedule; nothing when none is.")
@click.option("--schedule", metavar="LEVELS", help="Levels by calendar.  [default: weekly=0, daily=1, hourly=2]")
@click.option(
    "--table",
    "--tables",
    "tables",
    multiple=True,
    metavar="NAME",
    help="This table only; repeat, or separate by commas.",
)
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
    """Dumps STORE, or what changed since a lower level, to TARGET. TARGET is a folder or an s3:// URL.

    Writers go on meanwhile; while they commit, the dump works a twentieth of the time. One that was interrupted is gone
    on with.

    \b
    Examples:
      strandline dump shop backups
      strandline dump shop backups --level 1
      strandline dump shop s3://bucket/backups --due --schedule "weekly=0, daily=1"
    """
    from strandline.dumps import SCHEDULE, Dumps
    from strandline.dumps import dump as take_dump

    if due and (tables or version):
        raise click.UsageError("--due dumps the whole store; leave --table and --version out")
    with control(store) as pages:
        pages.start_heart()
        if due:
            due_level = Dumps(target, key_file=key_file).due(pages, schedule or SCHEDULE)
            if due_level is None:
                return answer({"due": None}, "No dump is due.", as_json=as_json)
            level = due_level
        scope: dict[str, Any] = {"tables": names_of(tables) or None, "version": version}
        made = take_dump(pages, target, level=level, key_file=key_file, runner=runner, hurry=hurry, **scope)
    if as_json:
        emit_json({**asdict(made), "taken": iso_time(made.taken)})
        return 0
    if made.notice:
        say(made.notice)
    upon = f", upon {made.parent}" if made.parent else ""
    say(f"{made.id}: level {made.level} as of {local_time(made.taken)}{upon}.")
    copied = f"{count_of(made.pages, 'page')}, {byte_count(made.bytes)}"
    say(f"{copied}, {made.freed:,} freed since, in {made.seconds:.1f} s.")
    return 0


@click.command()
@click.argument("target", metavar="TARGET", type=click.Path())
@click.option("--verify", is_flag=True, help="Read everything back.")
@click.option("--prune", metavar="RULE", help='Remove what no kept dump needs, as in "7 daily, 4 weekly, 6 monthly".')
@click.option("--sweep", is_flag=True, help="Remove what interrupted dumps left.")
@click.option("--synthesize", is_flag=True, help="Combine the chain of the last dump into a new level 0.")
@click.option("--confirm", is_flag=True, help="Really remove; without, only what would happen is said.")
@click.option("--key-file", type=click.Path(), help="The key of encrypted dumps; else STRANDLINE_DUMP_KEY.")
@telling
def dumps(
    target: str,
    verify: bool,
    prune: str | None,
    sweep: bool,
    synthesize: bool,
    confirm: bool,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Draws the dumps at TARGET, and verifies or prunes them. Drawn is what stands on what, what restores to when, and
    what could be deleted.

    \b
    Examples:
      strandline dumps backups
      strandline dumps backups --verify
      strandline dumps backups --prune "7 daily, 4 weekly, 6 monthly" --confirm
    """
    from strandline.dumps import Dumps

    if sum((verify, prune is not None, sweep, synthesize)) > 1:
        raise click.UsageError("--verify, --prune, --sweep and --synthesize are done one at a time")
    if confirm and prune is None and not sweep:
        raise click.UsageError("--confirm goes with --prune or --sweep")
    here = Dumps(target, key_file=key_file)
    if verify:
        return _verify(here, as_json)
    if prune is not None:
        return _removed(here.prune(prune, confirm=confirm), as_json)
    if sweep:
        return _removed(here.sweep(confirm=confirm), as_json)
    if synthesize:
        made = here.synthesize()
        return answer(
            {"id": made.id, "pages": made.pages, "bytes": made.bytes},
            f"{made.id}: {count_of(made.pages, 'page')}, {byte_count(made.bytes)}, in {made.seconds:.1f} s.",
            as_json=as_json,
        )
    return _draw(here, as_json)


def _draw(here: Dumps, as_json: bool) -> int:
    from strandline.dumps import draw

    entries = here.entries()
    if as_json:
        emit_json({"target": here.url, "dumps": [_facts(one) for one in entries]})
        return 0
    for line in draw(entries):
        console().print(line, markup=False, soft_wrap=True)
    complete = [one for one in entries if one.complete]
    say(f"{count_of(len(complete), 'dump')}, {byte_count(sum(one.bytes for one in complete))}.")
    return 0


def _facts(one: DumpEntry) -> dict[str, Any]:
    names = ("id", "state", "store", "level", "parent", "pages", "bytes", "commit", "synthetic")
    known = {name: getattr(one, name) for name in names}
    return {**known, "taken": iso_time(one.taken), "scope": str(one.scope)}


def _verify(here: Dumps, as_json: bool) -> int:
    report = here.verify()
    if as_json:
        damages = [{"dump": one.dump, "what": one.what} for one in report.damages]
        emit_json({"ok": report.ok, "whole": report.whole, "damages": damages, "bytes": report.bytes})
        return 0 if report.ok else 1
    for one in report.damages:
        console().print(f"{one.dump}: {one.what}", markup=False, soft_wrap=True)
    if report.ok:
        counts = f"{count_of(len(report.whole), 'dump')}, {count_of(report.pages, 'page')}"
        say(f"All is well: {counts}, {byte_count(report.bytes)} read back.")
    else:
        last = report.whole[-1] if report.whole else "none"
        say(f"{count_of(len(report.whole), 'dump')} can be restored, the last of them: {last}.")
    return 0 if report.ok else 1


def _removed(done: Pruned, as_json: bool) -> int:
    if as_json:
        emit_json(
            {
                "kept": done.kept,
                "removed": list(done.removed),
                "incomplete": list(done.attempts),
                "bytes": done.bytes,
                "confirmed": done.confirmed,
            }
        )
        return 0
    for id_, reason in done.kept.items():
        console().print(f"keep    {id_}  {reason}", markup=False, soft_wrap=True)
    for id_ in (*done.removed, *done.attempts):
        console().print(f"remove  {id_}{'  incomplete' if id_ in done.attempts else ''}", markup=False, soft_wrap=True)
    count = len(done.removed) + len(done.attempts)
    if done.confirmed:
        say(f"{count:,} removed, {byte_count(done.bytes)}.")
    else:
        say(f"Would remove {count:,}, {byte_count(done.bytes)}. Nothing was done; add --confirm to do it.")
    return 0


@click.command()
@click.argument("target", metavar="TARGET", type=click.Path())
@click.argument("path", metavar="PATH", type=click.Path())
@click.option("--at", metavar="WHEN", help="A dump's id, or a time: the last dump taken by then.  [default: the last]")
@click.option("--version", "version", metavar="NAME", help="This branch only, as the new store's main.")
@click.option(
    "--table",
    "--tables",
    "tables",
    multiple=True,
    metavar="NAME[=NEW]",
    help="This table only; repeat, or separate by commas.",
)
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
    for text in names_of(tables):
        chosen |= pairs([text], "--table") if "=" in text else {text: text}
    what: dict[str, Any] = {"at": _meant(at), "version": version, "tables": chosen or None, "branch": branch}
    done = bring_back(target, path, key_file=key_file, runner=runner, **what)
    if as_json:
        emit_json({**asdict(done), "taken": iso_time(done.taken)})
        return 0
    place = f"{', '.join(done.tables)} in {path}" if done.tables else path
    place += f", branch {branch}" if branch else ""
    say(f"{place}: as of {local_time(done.taken)}, from {' → '.join(done.chain)}.")
    if done.notice:
        say(done.notice)
    say(f"{count_of(done.pages, 'page')}, {byte_count(done.bytes)}, every checksum verified, in {done.seconds:.1f} s.")
    return 0


def _meant(at: str | None) -> str | dt.datetime | None:
    if at is None or "-L" in at:
        return at
    try:
        return dt.datetime.fromisoformat(at)
    except ValueError:
        return at

"""`strandline dumps`: the dumps at a place, drawn, verified, pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strandline.cli.output import console, emit_json, say
from strandline.cli.stores import instant, json_option, several, size
from strandline.engine.progress import set_quiet

if TYPE_CHECKING:
    from strandline.dumps import DumpEntry, Dumps, Pruned


@click.command()
@click.argument("target", metavar="TARGET", type=click.Path())
@click.option("--verify", is_flag=True, help="Read everything back.")
@click.option("--prune", metavar="RULE", help='Remove what no kept dump needs, as in "7 daily, 4 weekly, 6 monthly".')
@click.option("--sweep", is_flag=True, help="Remove what interrupted dumps left.")
@click.option("--synthesize", is_flag=True, help="Combine the chain of the last dump into a new level 0.")
@click.option("--confirm", is_flag=True, help="Really remove; without, only what would happen is said.")
@click.option("--key-file", type=click.Path(), help="The key of encrypted dumps; else STRANDLINE_DUMP_KEY.")
@json_option
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
    """Draws the dumps at TARGET: what stands on what, what restores to when, what could be deleted.

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
    set_quiet(as_json)
    here = Dumps(target, key_file=key_file)
    if verify:
        return _verify(here, as_json)
    if prune is not None:
        return _removed(here.prune(prune, confirm=confirm), as_json)
    if sweep:
        return _removed(here.sweep(confirm=confirm), as_json)
    if synthesize:
        made = here.synthesize()
        if as_json:
            emit_json({"id": made.id, "pages": made.pages, "bytes": made.bytes})
        else:
            say(f"{made.id}: {several(made.pages, 'page')}, {size(made.bytes)}, in {made.seconds:.1f} s.")
        return 0
    return _draw(here, as_json)


def _draw(here: Dumps, as_json: bool) -> int:
    from strandline.dumps.draw import draw

    entries = here.entries()
    if as_json:
        emit_json({"target": here.url, "dumps": [_facts(one) for one in entries]})
        return 0
    for line in draw(entries):
        console().print(line, markup=False, soft_wrap=True)
    complete = [one for one in entries if one.complete]
    say(f"{several(len(complete), 'dump')}, {size(sum(one.bytes for one in complete))}.")
    return 0


def _facts(one: DumpEntry) -> dict[str, Any]:
    names = ("id", "state", "store", "level", "parent", "pages", "bytes", "commit", "synthetic")
    known = {name: getattr(one, name) for name in names}
    return {**known, "taken": instant(one.taken), "scope": str(one.scope)}


def _verify(here: Dumps, as_json: bool) -> int:
    report = here.verify()
    if as_json:
        damages = [{"dump": one.dump, "what": one.what} for one in report.damages]
        emit_json({"ok": report.ok, "whole": report.whole, "damages": damages, "bytes": report.bytes})
        return 0 if report.ok else 1
    for one in report.damages:
        console().print(f"{one.dump}: {one.what}", markup=False, soft_wrap=True)
    if report.ok:
        counts = f"{several(len(report.whole), 'dump')}, {several(report.pages, 'page')}"
        say(f"All is well: {counts}, {size(report.bytes)} read back.")
    else:
        last = report.whole[-1] if report.whole else "none"
        say(f"{several(len(report.whole), 'dump')} can be restored, the last of them: {last}.")
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
    for id_, reason in sorted(done.kept.items()):
        console().print(f"keep    {id_}  {reason}", markup=False, soft_wrap=True)
    for id_ in (*done.removed, *done.attempts):
        console().print(f"remove  {id_}{'  incomplete' if id_ in done.attempts else ''}", markup=False, soft_wrap=True)
    count = len(done.removed) + len(done.attempts)
    if done.confirmed:
        say(f"{count:,} removed, {size(done.bytes)}.")
    else:
        say(f"Would remove {count:,}, {size(done.bytes)}. Nothing was done; add --confirm to do it.")
    return 0

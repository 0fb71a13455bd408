"""`strandline forget`: what a store keeps for copies and streams that will not come back."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.output import draw_rows, emit_json, say
from strandline.cli.stores import json_option, store_argument, tables_of, version_option


@click.command()
@store_argument
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--position", is_flag=True, help="Of a copy: only where it stands. Its next refresh compares it.")
@click.option("--drop", is_flag=True, help="Of a copy: remove its rows at the target, too.")
@version_option
@json_option
def forget(store: str, names: tuple[str, ...], version: str, as_json: bool, **how: bool) -> int:
    """Let STORE forget copies, or streams of changes, that will not come back, and free what it keeps for them.

    Without a name: which there are. The target of a copy is neither asked for nor touched, unless you say --drop.

    \b
    Example:
      strandline forget SHOP
      strandline forget SHOP cheap --drop
      strandline forget SHOP follower-5c0ffee5c0ffee00
    """
    if how["position"] and how["drop"]:
        raise click.UsageError("say --position or --drop, not both")
    with tables_of(store, version) as held:
        told = [_forgotten(held, name, **how) for name in names] if names else _known(held)
    if as_json:
        emit_json({"forgotten" if names else "known": told})
    elif not names:
        draw_rows("", ("name", "kind", "commit"), [[one["name"], one["kind"], one["commit"]] for one in told])
    else:
        for one in told:
            what = "where it stands" if how["position"] else f"the {one['kind']}"
            say(f"{one['name']}: {what} is forgotten.")
    return 0


def _known(store: Any) -> list[dict[str, Any]]:
    from strandline.views.following import followers

    copies = [(copy.name, "copy", copy.status()["position"]) for copy in store.copies()]
    streams = [(one.id, "stream", one.commit) for one in followers(store)]
    return [{"name": name, "kind": kind, "commit": commit} for name, kind, commit in (*copies, *streams)]


def _forgotten(store: Any, name: str, *, position: bool, drop: bool) -> dict[str, Any]:
    from strandline.errors import NotFound
    from strandline.views.following import forget as forget_stream

    known = {one["name"]: one for one in _known(store)}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise NotFound(f"there is no copy or stream {name!r}", doing="forgetting it", hint=f"There are: {listed}")
    if known[name]["kind"] == "stream":
        forget_stream(store, name)
    elif drop:
        store.copy(name).drop()
    elif position:
        store.copy(name).let_go()
    else:
        store.copy(name).forget()
    return known[name]

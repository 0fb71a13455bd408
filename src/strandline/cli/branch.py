"""`strandline branch`: a writable version of a store."""

from __future__ import annotations

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import STATE, control, json_option, store_argument, version_of


@click.command()
@store_argument
@click.argument("name")
@click.option("--at", metavar="STATE", help=f"Stand on an older state: {STATE}.")
@click.option("--of", "parent", metavar="BRANCH", default="main", show_default=True, help="The branch to stand on.")
@json_option
def branch(store: str, name: str, at: str | None, parent: str, as_json: bool) -> int:
    """Makes the branch NAME: a version of STORE that can be changed without touching the others.

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
    if as_json:
        emit_json({"branch": name, "of": parent, "commit": commit})
    else:
        say(f"The branch {name} stands on commit {commit} of {parent}.")
    return 0

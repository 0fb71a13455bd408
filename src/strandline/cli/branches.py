"""`strandline branches`: the versions of a store."""

from __future__ import annotations

import click

from strandline.cli.output import emit_json
from strandline.cli.stores import control, json_option, show_rows, store_argument


@click.command()
@store_argument
@json_option
def branches(store: str, as_json: bool) -> int:
    """The branches of STORE, where each stands, and on what.

    \b
    Example:
      strandline branches shop
    """
    with control(store) as pages:
        pointers = {name: pages.version(name).pointer() for name in sorted(pages.versions())}
    by_object = {pointer.object: name for name, pointer in pointers.items()}
    rows = [
        (
            name,
            pointer.commit,
            None if pointer.base is None else by_object.get(pointer.base.parent),
            None if pointer.base is None else pointer.base.commit,
        )
        for name, pointer in pointers.items()
    ]
    if as_json:
        names = ("name", "commit", "of", "from")
        emit_json({"branches": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        show_rows(("name", "commit", "of", "from commit"), rows)
    return 0

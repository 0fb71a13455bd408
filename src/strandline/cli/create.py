"""`strandline create`: a new store."""

from __future__ import annotations

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import NoRows, json_option, store_argument


@click.command()
@store_argument
@json_option
def create(store: str, as_json: bool) -> int:
    """Makes a new, empty store in a folder or at an s3://bucket/prefix URL.

    \b
    Example:
      strandline create shop
    """
    from strandline.pages import create_store
    from strandline.storage import open_storage

    storage = open_storage(store)
    create_store(storage, NoRows(), NoRows()).close()
    if as_json:
        emit_json({"store": storage.url})
    else:
        say(f"A new store: {store}. Load a table with: strandline load {store} TABLE SOURCE --key COLUMN")
    return 0

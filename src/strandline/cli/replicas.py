"""`strandline replicas`: the copies of a base or of a store, and how fresh they are."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.output import draw_rows, emit_json
from strandline.cli.refresh import is_base

SHOWN = ("name", "target", "position", "lag", "method", "messages", "bytes", "seconds", "refreshed")


@click.command()
@click.argument("source", metavar="BASE|STORE", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def replicas(source: str, as_json: bool) -> int:
    """The copies of a base, or of a store's views and tables.

    It says where each stands, how far behind it is, and what its last refresh did.

    \b
    Example:
      strandline replicas sqlite:///shop.db#orders
      strandline replicas SHOP
    """
    found = _of_a_base(source) if is_base(source) else _of_a_store(source)
    if as_json:
        emit_json({"replicas": found})
    else:
        draw_rows("", SHOWN, [[status.get(name) for name in SHOWN] for status in found])
    return 0


def _of_a_base(source: str) -> list[dict[str, Any]]:
    from strandline.detect.annotated import Base
    from strandline.replicas.databases import parse_address

    base = Base(parse_address(source))
    return [base.copy(record.name).status() for record in base.copies()]


def _of_a_store(source: str) -> list[dict[str, Any]]:
    from strandline.cli.stores import tables_of

    with tables_of(source) as store:
        return [copy.status() for copy in store.copies()]

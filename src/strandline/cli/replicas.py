"""`strandline replicas`: the copies of a base, and how fresh they are."""

from __future__ import annotations

import click

from strandline.cli.output import draw_rows, emit_json

SHOWN = ("name", "target", "position", "lag", "method", "messages", "bytes", "seconds", "refreshed")


@click.command()
@click.argument("base_url", metavar="BASE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def replicas(base_url: str, as_json: bool) -> int:
    """The copies of a base: where each stands, how far behind it is, and what its last refresh did.

    \b
    Example:
      strandline replicas sqlite:///shop.db#orders
    """
    from strandline.detect.annotated import Base
    from strandline.replicas.databases import parse_address

    base = Base(parse_address(base_url))
    found = [base.copy(record.name).status() for record in base.copies()]
    if as_json:
        emit_json({"replicas": found})
    else:
        draw_rows("", SHOWN, [[status.get(name) for name in SHOWN] for status in found])
    return 0

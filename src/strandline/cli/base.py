"""`strandline base`: annotated base tables in a database."""

from __future__ import annotations

from dataclasses import asdict

import click

from strandline.cli.output import draw_rows, emit_json, say


@click.command()
@click.argument("action", type=click.Choice(["add", "release", "list"]))
@click.argument("url")
@click.option(
    "--algorithm",
    type=click.Choice(["marked", "paper"]),
    help="add: with bits that spare messages, or as the paper has it.  [default: marked]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def base(action: str, url: str, algorithm: str | None, as_json: bool) -> int:
    """Make a table of PostgreSQL or SQLite a base of copies, release it, or list a database's bases.

    `add` adds nullable columns and a small trigger; `release` removes them, and the copies can't be refreshed any more.

    \b
    Example:
      strandline base add sqlite:///shop.db#orders
      strandline base list postgresql://me@host/shop
    """
    from strandline.detect.annotated.base import Base, bases
    from strandline.detect.annotated.base import base as annotated_base
    from strandline.replicas.databases import parse_address

    if action == "list":
        records = bases(url)
        if as_json:
            emit_json({"bases": [asdict(record) for record in records]})
            return 0
        names = ("table", "address", "algorithm", "time", "rows")
        draw_rows("", names, [[getattr(record, name) for name in names] for record in records])
        return 0
    if action == "add":
        annotated_base(url, algorithm=algorithm)
    else:
        Base(parse_address(url)).release()
    shown = parse_address(url).shown
    if as_json:
        emit_json({"action": action, "base": shown})
    else:
        say(f"{shown} is {'a base' if action == 'add' else 'released'}.")
    return 0

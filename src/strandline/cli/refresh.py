"""`strandline refresh`: copies brought up to date."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from strandline.cli.output import console, emit_json, say


@click.command()
@click.argument("base_url", metavar="BASE")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="Every copy of the base.")
@click.option(
    "--method",
    type=click.Choice(["auto", "differential", "full"]),
    help="differential: that way, or an error that says why not.  [default: as defined]",
)
@click.option("--repair", is_flag=True, help="Compare row by row and send what differs.")
@click.option("--explain", is_flag=True, help="Only say what each way would cost, and which would be taken.")
@click.option("--verify", is_flag=True, help="Compare with the query afterwards; exit code 1 if they differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def refresh(base_url: str, names: tuple[str, ...], every: bool, as_json: bool, **given: Any) -> int:
    """Bring copies of a base up to date, each by the way that costs less.

    \b
    Example:
      strandline refresh sqlite:///shop.db#orders cheap
      strandline refresh sqlite:///shop.db#orders --all --method differential
    """
    from strandline.detect.annotated import Base
    from strandline.replicas.databases import parse_address

    if bool(names) == every:
        raise click.UsageError("name the copies to refresh, or say --all")
    base = Base(parse_address(base_url))
    wanted = [record.name for record in base.copies()] if every else list(names)
    results: dict[str, Any] = {}
    equal = True
    for name in wanted:
        copy = base.copy(name)
        if given["explain"]:
            told = copy.explain()
            results[name] = asdict(told)
            if not as_json:
                console().print(f"{name}: {told}")
            continue
        done = copy.repair() if given["repair"] else copy.refresh(given["method"])
        results[name] = asdict(done)
        if given["verify"]:
            results[name]["equal"] = copy.verify().equal
            equal = equal and results[name]["equal"]
        if not as_json:
            size = f"{done.messages} messages, {done.bytes} bytes, {done.seconds:.2f} s"
            say(f"{name}: {done.method}, {size}; {done.why}.")
    if as_json:
        emit_json({"copies": results})
    return 0 if equal else 1

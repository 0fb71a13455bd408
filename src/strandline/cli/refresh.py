"""`strandline refresh`: copies brought up to date."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.output import console, emit_json, say

METHODS = ("auto", "differential", "difference", "repair", "full")
_UNITS = {"s": 1, "m": 60, "h": 3600}


@click.command()
@click.argument("source", metavar="BASE|STORE", type=click.Path())
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="Every copy.")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="differential, difference: that way, or an error that says why not.  [default: as costs less]",
)
@click.option("--repair", is_flag=True, help="Compare row by row and send what differs.")
@click.option("--explain", is_flag=True, help="Only say what each way would cost, and which would be taken.")
@click.option("--verify", is_flag=True, help="Compare with the query afterwards; exit code 1 if they differ.")
@click.option("--watch", metavar="TIME", help="Again and again, waiting so long in between: 30s, 5m, 1h.")
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after so many rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def refresh(source: str, names: tuple[str, ...], every: bool, as_json: bool, **given: Any) -> int:
    """Bring copies of a base, or of a store's views and tables, up to date, each by the way that costs less.

    \b
    Example:
      strandline refresh sqlite:///shop.db#orders cheap
      strandline refresh SHOP --all
      strandline refresh SHOP cheap --watch 30s
    """
    if bool(names) == every:
        raise click.UsageError("name the copies to refresh, or say --all")
    pause = None if given["watch"] is None else _seconds(given["watch"])
    results: dict[str, Any] = {}
    equal, rounds = True, 0
    while True:
        with _copies(source, names, every) as copies:
            for name, copy in copies:
                results[name] = _refreshed(name, copy, given, quiet=as_json)
                equal = equal and results[name].get("equal", True)
        rounds += 1
        if pause is None or rounds == given["times"]:
            break
        time.sleep(pause)
    if as_json:
        emit_json({"copies": results})
    return 0 if equal else 1


def is_base(source: str) -> bool:
    """Whether this names an annotated base in a database, and not a store."""
    return source.startswith(("sqlite:", "postgresql:", "postgres:"))


@contextmanager
def _copies(source: str, names: tuple[str, ...], every: bool) -> Iterator[list[tuple[str, Any]]]:
    if is_base(source):
        from strandline.detect.annotated import Base
        from strandline.replicas.databases import parse_address

        base = Base(parse_address(source))
        wanted = [record.name for record in base.copies()] if every else list(names)
        yield [(name, base.copy(name)) for name in wanted]
        return
    from strandline.cli.stores import tables_of

    with tables_of(source) as store:
        yield [(copy.name, copy) for copy in (store.copies() if every else [store.copy(name) for name in names])]


def _refreshed(name: str, copy: Any, given: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    if given["explain"]:
        told = copy.explain()
        if not quiet:
            console().print(f"{name}: {told}")
        return asdict(told)
    method = given["method"]
    done = copy.repair() if given["repair"] else copy.refresh(method) if method else copy.refresh()
    found = asdict(done)
    if given["verify"]:
        found["equal"] = copy.verify().equal
    if not quiet:
        size = f"{done.messages} messages, {done.bytes} bytes, {done.seconds:.2f} s"
        say(f"{name}: {done.method}, {size}; {done.why}.")
    return found


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise click.UsageError(f"{text!r} is no time: say 30s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2] or "s"]

"""The commands about copies: `base`, `replicate`, `refresh`, `replicas`, `forget`.

`base` makes tables of a database bases of copies; `replicate` makes a copy of a base, of a view or of a table;
`refresh` brings copies up to date; `replicas` lists them and says how fresh they are; `forget` frees what a store keeps
for copies and streams that will not come back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.inputs import names_of
from strandline.cli.output import answer, complain, console, emit_json, say, span, telling
from strandline.cli.store_access import count_of, show_rows, store_argument, tables_of, version_option

if TYPE_CHECKING:
    from strandline.replication import Verification


@click.command()
@click.argument("action", type=click.Choice(["add", "release", "list"]))
@click.argument("url")
@click.option(
    "--algorithm",
    type=click.Choice(["marked", "paper"]),
    help="add: with bits that spare messages, or as the paper has it.  [default: marked]",
)
@telling
def base(action: str, url: str, algorithm: str | None, as_json: bool) -> int:
    """Makes a table of a database a base of copies, or releases it. The database is PostgreSQL or SQLite; `list` lists
    its bases.

    `add` makes a table of annotations beside it, and triggers; `release` removes both, and copies stay as they are.

    \b
    Example:
      strandline base add sqlite:///shop.db#orders
      strandline base list postgresql://me@host/shop
    """
    from strandline.relations import parse_address
    from strandline.replication import Base, bases
    from strandline.replication import base as annotated_base

    if action == "list":
        records = bases(url)
        if as_json:
            emit_json({"bases": [asdict(record) for record in records]})
            return 0
        names = ("table", "address", "algorithm", "time", "rows")
        show_rows(names, [[getattr(record, name) for name in names] for record in records])
        return 0
    if action == "add":
        annotated_base(url, algorithm=algorithm)
    else:
        Base(parse_address(url)).release()
    shown = parse_address(url).shown
    return answer(
        {"action": action, "base": shown}, f"{shown} is {'a base' if action == 'add' else 'released'}.", as_json=as_json
    )


@click.command()
@click.argument("places", nargs=-1, metavar="BASE TARGET | STORE VIEW TARGET", type=click.Path())
@click.option("--where", help="Copy only rows that meet this SQL condition.")
@click.option("--columns", multiple=True, help="Copy only these columns; repeat, or separate by commas.")
@click.option("--name", help="What to call the copy.  [default: its table's name]")
@click.option(
    "--method",
    type=click.Choice(["auto", "differential", "full"]),
    default="auto",
    show_default=True,
    help="Of a base's copy: how it is refreshed unless told otherwise.",
)
@click.option("--keep", metavar="TIME", help="Of a view's copy: how long it may be away: 12h, 30d.  [default: 30d]")
@click.option(
    "--target-lag",
    metavar="TIME",
    help="Of a view's copy: how long it may be behind before `refresh --due` refreshes it: 10m, 1h; none.",
)
@click.option(
    "--runner",
    type=click.Choice(["auto", "spark", "inline"]),
    default="auto",
    show_default=True,
    help="Who reads the rows: Spark tasks side by side, or this process.",
)
@version_option
@telling
def replicate(places: tuple[str, ...], columns: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Copies a base, or a view or table of a store, elsewhere. A base is a table of PostgreSQL or SQLite.

    `strandline refresh` keeps it fresh.

    TARGET is duckdb:///file#table, sqlite:///file#table, postgresql://…#table, strandline:///store#table, or
    parquet:///folder, delta:///folder, iceberg:///folder. Stopped, the same command goes on. With another --keep or
    --target-lag it changes those of a copy that is there.

    \b
    Example:
      strandline replicate sqlite:///shop.db#orders duckdb:///cheap.duckdb#cheap --where "price < 10"
      strandline replicate SHOP cheap duckdb:///cheap.duckdb#cheap --target-lag 10m
    """
    chosen = list(names_of(columns)) or None
    if len(places) == 3:
        status = _of_a_view(places, chosen, given)
    elif len(places) == 2:
        status = _of_a_base(places, chosen, given)
    else:
        raise click.UsageError("say BASE TARGET, or STORE VIEW TARGET")
    return answer(
        status,
        f"{status['name']}: {_sent(status['messages'], status['bytes'])} to {status['target']}.",
        as_json=as_json,
    )


def _of_a_base(places: Sequence[str], columns: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    for name in ("keep", "target_lag"):
        if given.pop(name) is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for copies of a view or a table of a store")
    _check_no_branch(given.pop("version"))
    from strandline.replication import base as annotated_base

    return annotated_base(places[0]).replicate(places[1], columns=columns, **given).status()


def _of_a_view(places: Sequence[str], columns: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    store, view, target = places
    if given.pop("method") != "auto":
        raise click.UsageError("--method is for copies of a base; for those of a view: view create --refresh-policy")
    given = {name: value for name, value in given.items() if (name, value) != ("keep", None)}
    with tables_of(store, given.pop("version")) as held:
        return held.view(view).replicate(target, columns=columns, **given).status()


def _check_no_branch(version: str) -> None:
    if version != "main":
        raise click.UsageError("--version is for copies of a store: a database has no branches")


def _sent(messages: int, size: int) -> str:
    return f"{count_of(messages, 'message')}, {count_of(size, 'byte')}"


METHODS = ("auto", "differential", "difference", "repair", "full", "incremental", "incremental_strict")


@click.command()
@click.argument("source", metavar="BASE|STORE", type=click.Path())
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="Every copy, and every stored view.")
@click.option(
    "--due", is_flag=True, help="Copies and stored views of a store that are behind by more than their target lag."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="differential, difference, incremental_strict: that way, or an error that says why not.  [default: by the "
    "view's refresh policy, or as costs less]",
)
@click.option("--repair", is_flag=True, help="Compare row by row and send what differs.")
@click.option("--explain", is_flag=True, help="Only say what each way would cost, and which would be taken.")
@click.option("--verify", is_flag=True, help="Compare with the query afterwards; exit code 1 if they differ.")
@click.option("--watch", metavar="TIME", help="Again and again, waiting so long in between: 30s, 5m, 1h.")
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after so many rounds.")
@version_option
@telling
def refresh(source: str, names: tuple[str, ...], every: bool, as_json: bool, **given: Any) -> int:
    """Brings copies and stored views up to date. Copies are those of a base, or of a store's views and tables; each is
    refreshed by the way that costs less.

    Copies of a store that are refreshed together show one state of it. One that fails keeps no other from being
    refreshed; the exit code is 2 then, and with --watch the next round tries it again. With --due and --watch a copy is
    refreshed in the last round before it would be behind by more than its target.

    \b
    Example:
      strandline refresh sqlite:///shop.db#orders cheap
      strandline refresh SHOP --all
      strandline refresh SHOP --due --watch 1m
    """
    if bool(names) + every + given["due"] != 1:
        raise click.UsageError("name the copies to refresh, or say --all or --due")
    if given["due"] and is_base(source):
        raise click.UsageError("--due is for copies of a store: those of a base have no target lag")
    pause = None if given["watch"] is None else _seconds(given["watch"])
    results: dict[str, Any] = {}
    equal, rounds = True, 0
    while True:
        failed = _round(source, names, given | {"quiet": as_json, "ahead": pause or 0.0}, results)
        equal = equal and all(one.get("equal", True) for one in results.values())
        rounds += 1
        if pause is None or rounds == given["times"]:
            break
        time.sleep(pause)
    if failed is not None:
        raise failed
    if as_json:
        emit_json({"copies": results})
    elif given["due"] and not results:
        say("No copy is behind by more than its target lag.")
    return 0 if equal else 1


def _round(source: str, names: tuple[str, ...], given: dict[str, Any], results: dict[str, Any]) -> Exception | None:
    """Refreshes each copy once; the error of those that failed, if any did."""
    from strandline.errors import Cancelled, StrandlineError
    from strandline.store import first_of

    failed: dict[str, StrandlineError] = {}
    with _copies(source, names, given) as copies:
        for copy in copies:
            try:
                results[copy.name] = _refreshed(copy, given)
            except Cancelled:
                raise
            except StrandlineError as error:
                failed[copy.name] = error
                if given["watch"] is not None:
                    complain(f"{copy.name}: {error}")
    return first_of(failed) if failed else None


def is_base(source: str) -> bool:
    """Whether this names an annotated base in a database, and not a store."""
    return source.startswith(("sqlite:", "postgresql:", "postgres:"))


@contextmanager
def _copies(source: str, names: tuple[str, ...], given: dict[str, Any]) -> Iterator[Iterable[Any]]:
    if is_base(source):
        from strandline.relations import parse_address
        from strandline.replication import Base

        _check_no_branch(given["version"])
        base = Base(parse_address(source))
        yield [base.copy(name) for name in names or [record.name for record in base.copies()]]
        return
    from strandline.store import copies_together, due_copies

    with tables_of(source, given["version"]) as store:
        wanted = due_copies(store, given["ahead"]) if given["due"] else names
        yield copies_together(store, wanted) if wanted or not given["due"] else ()


def _refreshed(copy: Any, given: dict[str, Any]) -> dict[str, Any]:
    if given["explain"]:
        explanation = copy.explain()
        if not given["quiet"]:
            console().print(f"{copy.name}: {explanation}")
        return {"why": explanation} if isinstance(explanation, str) else dict(explanation.to_json())
    done = copy.repair() if given["repair"] else copy.refresh(given["method"])
    record = asdict(done)
    if not given["quiet"]:
        size = f"{_sent(done.messages, done.bytes)}, {done.seconds:.2f} s"
        as_of = "" if done.as_of is None else f"; as of {done.as_of}"
        say(f"{copy.name}: {done.method}, {size}; {done.why}{as_of}.")
    if given["verify"]:
        found = copy.verify()
        record |= {"equal": found.equal, "verification": asdict(found)}
        if not found.equal:
            complain(f"{copy.name}: {_differences(found)}. Mend it: --repair.")
        elif not given["quiet"]:
            say(f"{copy.name}: verified, {count_of(found.rows, 'row')}.")
    return record


def _differences(found: Verification) -> str:
    """How a copy differs from what it should hold."""
    counts = {"missing": found.missing, "too many": found.extra, "different": found.different}
    rows = ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)
    return "; ".join([*([f"of {count_of(found.rows, 'row')} {rows}"] if rows else []), *found.damaged])


def _seconds(text: str) -> float:
    from strandline.values import seconds_of

    seconds = seconds_of(text)
    if seconds is None:
        raise click.UsageError(f"{text!r} is no length of time: say 30s, 5m or 1h, for example")
    return seconds


SHOWN = (
    "name",
    "target",
    "position",
    "lag",
    "behind",
    "target_lag",
    "method",
    "messages",
    "bytes",
    "seconds",
    "refreshed",
)


@click.command()
@click.argument("source", metavar="BASE|STORE", type=click.Path())
@version_option
@telling
def replicas(source: str, version: str, as_json: bool) -> int:
    """The copies of a base, or of a store's views and tables.

    It says where each stands, how far behind it is, and what its last refresh did.

    \b
    Example:
      strandline replicas sqlite:///shop.db#orders
      strandline replicas SHOP
    """
    statuses = _base_replicas(source, version) if is_base(source) else _of_a_store(source, version)
    if as_json:
        emit_json({"replicas": statuses})
    else:
        spans = [{**one, **{name: span(one.get(name)) for name in ("behind", "target_lag")}} for one in statuses]
        show_rows(SHOWN, [[status.get(name) for name in SHOWN] for status in spans])
    return 0


def _base_replicas(source: str, version: str) -> list[dict[str, Any]]:
    _check_no_branch(version)
    from strandline.relations import parse_address
    from strandline.replication import Base

    base = Base(parse_address(source))
    return [base.copy(record.name).status() for record in base.copies()]


def _of_a_store(source: str, version: str) -> list[dict[str, Any]]:
    with tables_of(source, version) as store:
        return [copy.status() for copy in store.copies()]


@click.command()
@store_argument
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--position", is_flag=True, help="Of a copy: only where it stands. Its next refresh compares it.")
@click.option("--drop", is_flag=True, help="Of a copy: remove its rows at the target, too.")
@version_option
@telling
def forget(store: str, names: tuple[str, ...], version: str, as_json: bool, **how: bool) -> int:
    """Forgets copies, or streams of changes, that won't come back. What STORE keeps for them is freed.

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
        rows = [_forgotten(held, name, **how) for name in names] if names else _known(held)
    if as_json:
        emit_json({"forgotten" if names else "known": rows})
    elif not names:
        show_rows(("name", "kind", "commit"), [[row["name"], row["kind"], row["commit"]] for row in rows])
    else:
        for row in rows:
            what = "where it stands" if how["position"] else f"the {row['kind']}"
            say(f"{row['name']}: {what} is forgotten.")
    return 0


def _known(store: Any) -> list[dict[str, Any]]:
    from strandline.views import followers

    copies = [(copy.name, "copy", copy.status()["position"]) for copy in store.copies()]
    streams = [(one.id, "stream", one.commit) for one in followers(store)]
    return [{"name": name, "kind": kind, "commit": commit} for name, kind, commit in (*copies, *streams)]


def _forgotten(store: Any, name: str, *, position: bool, drop: bool) -> dict[str, Any]:
    from strandline.errors import NotFound
    from strandline.views import forget as forget_stream

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

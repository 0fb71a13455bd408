"""What commands read: the options that say how, and sides of a comparison, which may be of stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.output import pairs
from strandline.cli.store_access import check_name, check_no_view, storage_of, tables_of

if TYPE_CHECKING:
    from strandline.pages import PageSnapshot
    from strandline.relations import ReadOptions
    from strandline.store import Store

F = TypeVar("F", bound=Callable[..., Any])
_READING_OPTIONS = (
    click.option("--types", multiple=True, metavar="COLUMN=TYPE", help="The type of a column, e.g. id=int64."),
    click.option(
        "--union-by-name", is_flag=True, help="Part files may differ: types are widened, absent columns null."
    ),
    click.option("--no-header", is_flag=True, help="CSV without a header line."),
    click.option("--delimiter", help="CSV delimiter."),
    click.option("--encoding", default="utf-8", show_default=True, help="CSV encoding, e.g. latin-1."),
    click.option(
        "--nulls", multiple=True, metavar="TEXT", help="CSV text that means null, e.g. NA; repeat for several."
    ),
)


_SOURCE_OPTIONS = (
    click.option(
        "--input-format",
        "--format",
        "format_",
        help="What the source is, if name and content don't tell: csv, parquet, …",
    ),
    click.option("--query", metavar="SQL", help="What to read of the database that SOURCE names, instead of a table."),
    *_READING_OPTIONS,
)


def reading_options(function: F) -> F:
    """How files are read, for `read_options`."""
    for option in reversed(_READING_OPTIONS):
        function = option(function)
    return function


def source_options(function: F) -> F:
    """How one source of rows is read, for `source_of`."""
    for option in reversed(_SOURCE_OPTIONS):
        function = option(function)
    return function


def source_of(source: str, given: Mapping[str, Any], stack: ExitStack) -> Any:
    """The relation that a SOURCE names, read as `source_options` say, while the stack holds it open."""
    from strandline.relations import open_relation

    (side,) = open_sides((source,), stack)
    if side is not source:
        return side
    return open_relation(source, format=given["format_"], options=read_options(given))


def read_options(given: Mapping[str, Any]) -> ReadOptions:
    """What `reading_options` say, and `--query` where a command has it."""
    from strandline.relations import ReadOptions

    return ReadOptions(
        types=pairs(given["types"], "--types"),
        header=not given["no_header"],
        delimiter=given["delimiter"],
        encoding=given["encoding"],
        nulls=given["nulls"],
        union_by_name=given["union_by_name"],
        query=given.get("query"),
    )


def names_of(given: Sequence[str]) -> tuple[str, ...]:
    """Names of an option that may be repeated, or have several with commas between them."""
    return tuple(name for text in given for name in text.split(",") if name)


def open_sides(texts: Sequence[str | None], stack: ExitStack) -> list[Any]:
    """What `sl.diff` takes for sides. `STORE#NAME@STATE` is a table or what-if as it was at a state; sides of one store
    that name none are of one state.
    """
    opened: dict[str, tuple[Store, PageSnapshot]] = {}
    for text in texts:
        if text is not None:
            _refuse_store(text)
    return [text if text is None or not _names_a_relation(text) else _side(text, opened, stack) for text in texts]


def _refuse_store(text: str) -> None:
    if os.path.isfile(os.path.join(text, "MASTER")):
        raise click.UsageError(f"there is a store at {text}: say which of its tables, as in {text}#orders")


def _side(text: str, opened: dict[str, tuple[Store, PageSnapshot]], stack: ExitStack) -> Any:
    from strandline.pages import parse_at

    path, _, name = text.rpartition("#")
    url = storage_of(path).url
    if url not in opened:
        store = stack.enter_context(tables_of(path))
        opened[url] = store, stack.enter_context(store.hold())
    store, now = opened[url]
    name, _, state = name.partition("@")
    with store.hold(parse_at(store.pages, state) if state else now) as snapshot:
        relations = _relations(store, snapshot)
        if name not in relations:
            check_no_view(store, name, f"reading {text}")
        check_name(relations, name, "table")
        return store.named(name, snapshot)


def _relations(store: Store, snapshot: PageSnapshot) -> list[str]:
    from strandline.whatif import definitions

    return [*store.tables(at=snapshot), *definitions(snapshot.view, store.cache)]


_STORES = ("s3://", "s3a://", "file://")


def _names_a_relation(text: str) -> bool:
    """A file may have a # in its name, a workbook's sheet stands behind one; a store has a MASTER, or is at a URL."""
    from strandline.relations import split_sheet

    path, mark, name = text.rpartition("#")
    if not mark or not path or not name or os.path.exists(text) or split_sheet(text)[1]:
        return False
    return path.startswith(_STORES) or os.path.isfile(os.path.join(path, "MASTER"))

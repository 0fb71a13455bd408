"""What the store's commands share: opening a store, naming a state, and printing rows.

Commands of the control plane open the pages alone: no Arrow, no SQL and no Spark is imported for them, so that they
answer at once.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.output import draw_rows, leave_pandas_out, plain
from strandline.errors import InputError, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.pages import PageStore, Version
    from strandline.storage import Storage
    from strandline.store import Store


F = TypeVar("F", bound=Callable[..., Any])

store_argument = click.argument("store", metavar="STORE", type=click.Path())
version_option = click.option(
    "--version", "version", metavar="NAME", default="main", help="The branch.  [default: main]"
)
STATE = "a snapshot, a commit number or a time"


def also(views: Sequence[str], copies: Sequence[str]) -> str:
    """What goes with something that is dropped, in words; nothing if nothing does."""
    gone = f"; so are the views {', '.join(views)}" if views else ""
    return gone + (f"; the copies {', '.join(copies)} are forgotten, and keep the rows they have" if copies else "")


class NoRows:
    """Installer and validator of the control plane, which commits no rows."""

    def install(self, edit: Any, changes: Any) -> None:
        raise AssertionError("the control plane changes no rows")

    def conflict(self, transaction: Any, older: Any, newer: Any) -> None:
        raise AssertionError("the control plane changes no rows")


def storage_of(path: str) -> Storage:
    """The storage of an existing store."""
    from strandline.pages import MASTER
    from strandline.storage import open_storage

    storage = open_storage(path)
    if "://" not in path and not os.path.isdir(path):
        raise _no_store(path)
    try:
        storage.get(MASTER)
    except NotFound:
        raise _no_store(path) from None
    return storage


@contextmanager
def control(path: str) -> Iterator[PageStore]:
    """A store's control plane, open inside the block."""
    from strandline.pages import open_store

    with open_store(storage_of(path), NoRows(), NoRows()) as pages:
        yield pages


@contextmanager
def tables_of(path: str, version: str = "main") -> Iterator[Store]:
    """A store with its tables, open inside the block."""
    from strandline.store import open_on

    leave_pandas_out()
    with open_on(storage_of(path)) as store:
        check_name(store.branches(), version, "branch")
        yield store if version == "main" else store.version(version)


def version_of(pages: PageStore, name: str) -> Version:
    """A branch; an error names those that there are."""
    check_name(sorted(pages.versions()), name, "branch")
    return pages.version(name)


def check_name(names: Sequence[str], name: str, kind: str) -> None:
    """Refuses a name that is not among `names`, which the error lists."""
    if name not in names:
        plural = {"branch": "branches"}.get(kind, f"{kind}s")
        hint = f"The {plural} are {', '.join(names[:20])}" if names else f"There are no {plural} yet"
        raise NotFound(f"there is no {kind} {name}", doing=f"looking for the {kind} {name}", hint=hint)


def check_table(store: Store, name: str, doing: str) -> None:
    """Refuses a view or a what-if where a table is wanted, by saying which commands are for it."""
    if name in store.tables():
        return
    check_no_view(store, name, doing)
    _check_none((one.name for one in store.what_ifs()), name, "what-if", doing)


def check_no_view(store: Store, name: str, doing: str) -> None:
    """The same of views alone."""
    _check_none((one.name for one in store.views()), name, "view", doing)


def _check_none(names: Iterable[str], name: str, kind: str, doing: str) -> None:
    if name in names:
        family = kind.replace("-", "")
        hint = f"See strandline {family} --help; strandline query … --out writes its rows"
        raise InputError(f"{name} is a {kind}, and no table", doing=doing, hint=hint)


def show_rows(
    names: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, longest: int | None = None
) -> None:
    """A table on a terminal; elsewhere lines of values separated by tabs, the names first."""
    if sys.stdout.isatty():
        draw_rows(title, names, rows, longest=longest)
        return
    sys.stdout.write("\t".join(names) + "\n")
    for row in rows:
        sys.stdout.write("\t".join("" if value is None else flat(value) for value in row) + "\n")


def show_table(rows: pa.Table) -> None:
    """The same of users' rows: long values are cut on a terminal, and two columns may have one name."""
    show_rows(rows.column_names, zip(*(column.to_pylist() for column in rows.columns), strict=True), longest=60)


def local_time(seconds: float) -> str:
    """A time for people: local, to the second."""
    return dt.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def iso_time(seconds: float) -> str:
    """A time for programs: ISO, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def count_of(count: int, noun: str) -> str:
    """A count with its noun: 1 page, 2 pages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def flat(value: Any) -> str:
    """A value as one field of a line."""
    import json

    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False).strip('"')
    return text.replace("\t", " ").replace("\n", " ")


def _no_store(path: str) -> NotFound:
    return NotFound(
        f"there is no store at {path}", doing="opening a store", hint=f"Create one: strandline create {path}"
    )

"""The options of the data sources: checked when a DataFrame is made, before any job, with an example in every error.

Spark calls the sources in processes of its own, and shows their errors to the user as text: `without_traceback` keeps
the stack trace out of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from strandline.errors import InputError, StrandlineError, did_you_mean

READ_EXAMPLE = 'spark.read.format("strandline").option("table", "orders").load("shop")'
WRITE_EXAMPLE = 'df.write.format("strandline").option("table", "orders").mode("append").save("shop")'
STREAM_EXAMPLE = (
    'spark.readStream.format("strandline").option("table", "orders").option("startingAt", "now").load("shop")'
)
DIFF_EXAMPLE = 'spark.read.format("strandline.diff").option("old", "a.parquet").option("new", "b.parquet").load()'

BEGINNING = "beginning"
"""Where a stream starts by default: all rows that are there, then what changes."""
READ_OPTIONS = ("path", "table", "at", "as_of", "version", "since", "until", "columns", "where", "pushdown")
STREAM_OPTIONS = ("path", "table", "view", "version", "startingat")
WRITE_OPTIONS = ("path", "table", "version", "merge", "key", "message")
DIFF_OPTIONS = ("old", "new", "key", "algorithm", "columns", "ignore", "where", "duplicates", "format", "memory")


PINNED = "pinned"
"""The reader's own option: the state that it has pinned, as `PinnedState` in JSON."""


@dataclass(frozen=True)
class ReadRequest:
    """What to read: the rows of a table or what-if at a state or, with `since`, what changed in it.

    `as_of` is for what-ifs: only changes up to that date.
    """

    path: str
    table: str
    version: str | None = None
    at: str | None = None
    as_of: str | None = None
    since: str | None = None
    until: str | None = None
    columns: tuple[str, ...] = ()
    where: str | None = None
    pushdown: bool = False
    pinned: str | None = None


@dataclass(frozen=True)
class StreamRequest:
    """What to follow: a table (or what-if) or a view (`kind` says which), and from where."""

    path: str
    kind: str
    name: str
    starting: str
    version: str | None = None


@dataclass(frozen=True)
class WriteRequest:
    """Where to write. `merge` asks for an upsert; `key` is the key of a table that is not there yet."""

    path: str
    table: str
    version: str | None = None
    merge: str | None = None
    key: tuple[str, ...] = ()
    message: str = ""
    overwrite: bool = False


def stream_request(options: Mapping[str, str]) -> StreamRequest:
    """The options of a stream."""
    doing = "following changes"
    check_known(options, STREAM_OPTIONS, doing, STREAM_EXAMPLE)
    kinds = [kind for kind in ("table", "view") if options.get(kind)]
    if len(kinds) != 1:
        why = "both table and view are given" if kinds else "the option 'table' or 'view' is missing"
        raise InputError(why, doing=doing, hint=f"For example {STREAM_EXAMPLE}")
    if kinds == ["table"] and not is_stream(options):
        raise InputError(
            "of a table, startingAt tells its changes from its rows, and it is missing",
            doing=doing,
            hint=f"Say view instead of table, to start at the beginning; or for example {STREAM_EXAMPLE}",
        )
    return StreamRequest(
        path=required(options, "path", doing, STREAM_EXAMPLE),
        kind=kinds[0],
        name=options[kinds[0]],
        starting=options.get("startingAt") or BEGINNING,
        version=options.get("version"),
    )


def is_stream(options: Mapping[str, str]) -> bool:
    """Whether the options ask for a stream: when Spark asks for the schema it does not say, so an option has to.

    A view is read by streams alone; a table is read in both ways.
    """
    return any(name.lower() in ("startingat", "view") for name in options)


def read_request(options: Mapping[str, str]) -> ReadRequest:
    """The options of a read."""
    doing = "reading a table of a store"
    check_known(options, READ_OPTIONS, doing, READ_EXAMPLE)
    request = ReadRequest(
        path=required(options, "path", doing, READ_EXAMPLE),
        table=required(options, "table", doing, READ_EXAMPLE),
        version=options.get("version"),
        at=options.get("at"),
        as_of=options.get("as_of"),
        since=options.get("since"),
        until=options.get("until"),
        columns=parse_names(options.get("columns")),
        where=options.get("where"),
        pushdown=parse_flag(options, "pushdown", doing),
        pinned=options.get(PINNED),
    )
    if request.since is None and request.until is not None:
        raise InputError("until is given, since is not", doing=doing, hint="Say since which state changes are wanted")
    if request.since is not None and (request.at is not None or request.as_of is not None):
        raise InputError("both since and at or as_of are given", doing=doing, hint="With since, the end is until")
    if request.since is not None and (request.columns or request.where or request.pushdown):
        raise InputError(
            "changes come whole", doing=doing, hint="Leave columns, where and pushdown out, and use select"
        )
    return request


def write_request(options: Mapping[str, str], *, overwrite: bool) -> WriteRequest:
    """The options of a write."""
    doing = "writing into a store"
    check_known(options, WRITE_OPTIONS, doing, WRITE_EXAMPLE)
    request = WriteRequest(
        path=required(options, "path", doing, WRITE_EXAMPLE),
        table=required(options, "table", doing, WRITE_EXAMPLE),
        version=options.get("version"),
        merge=options.get("merge"),
        key=parse_names(options.get("key")),
        message=options.get("message", ""),
        overwrite=overwrite,
    )
    if request.merge is not None and overwrite:
        raise InputError('merge goes with mode("append")', doing=doing, hint="overwrite replaces all rows")
    return request


def check_known(options: Mapping[str, str], known: Sequence[str], doing: str, example: str) -> None:
    """Refuses options that are not known: a misspelt one would be ignored in silence."""
    for name in options:
        if name.lower() not in (*known, PINNED):
            meant = did_you_mean(name.lower(), known)
            raise InputError(
                f"there is no option {name!r}",
                doing=doing,
                hint=f"{meant} The options are {', '.join(known)}; for example {example}".strip(),
            )


def required(options: Mapping[str, str], name: str, doing: str, example: str) -> str:
    value = options.get(name)
    if not value:
        what = "the path of the store" if name == "path" else f"the option {name!r}"
        raise InputError(f"{what} is missing", doing=doing, hint=f"For example {example}")
    return value


def parse_names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_flag(options: Mapping[str, str], name: str, doing: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InputError(f"{name} is {value!r}", doing=doing, hint="Say true or false")
    return value == "true"


@contextmanager
def without_traceback() -> Iterator[None]:
    """Inside, Spark shows our errors without a stack trace. For Spark's own Python processes only."""
    try:
        yield
    except StrandlineError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None

"""Logs of events as change sets: Delta's change data feed, and the messages of a Debezium topic.

A log holds row images in order: one that goes (−1) or one that comes (+1). Several events of one key collapse to one
change, and only if they prove to be those of one row: what comes and what goes alternate, and what goes is what
came last. Another log (a key is not unique, an event is missing) is refused with its keys.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence, Set
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.changes.shape import ChangeSet, check_key, check_schema, show
from strandline.changes.table_difference import difference
from strandline.engine import Spool
from strandline.errors import ChangesError, FormatError, InputError, SchemaError, extra
from strandline.relations import catch_stream, is_stream, missing, relation_schema
from strandline.values import (
    Flags,
    Positions,
    array_of,
    convert_text,
    first_occurrences,
    is_bytes,
    is_text,
    plain,
    unequal,
)

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
SIGNS = {"delete": -1, "update_preimage": -1, "insert": 1, "update_postimage": 1}
"""What each line of a change data feed does to the table."""
_SCHEMA = "Give the schema: Changes.from_debezium(…, schema=…)"
_PLACEHOLDERS = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
_UNAVAILABLE = (*_PLACEHOLDERS, *([each] for each in _PLACEHOLDERS))
"""What stands, as text, as bytes or in a list, where PostgreSQL did not send a large value (TOAST) to Debezium."""
_CREATES, _UPDATES, _DELETES = ("c", "r"), ("u",), ("d",)


def net_of_events(rows: pa.Table, signs: Positions, moments: Positions, key: Sequence[str], doing: str) -> ChangeSet:
    """The net change set of row images; `moments` order them, and of one moment what goes stands before what comes."""
    check_schema(rows.schema)
    check_key(rows.schema, key)
    rows = plain(rows)
    group = first_occurrences(rows.select(list(key)))
    order = np.lexsort((signs, moments, group))
    group, sign, rows = group[order], signs[order], rows.take(pa.array(order))
    same = group[1:] == group[:-1]
    _check_story(rows, sign, same, key, doing)
    first, last = np.append(True, ~same), np.append(~same, True)
    if not len(rows):
        first = last = np.zeros(0, dtype=bool)
    old, new = rows.filter(pa.array(first & (sign < 0))), rows.filter(pa.array(last & (sign > 0)))
    return difference(old, new, key).knowing(None)


def _check_story(rows: pa.Table, sign: Positions, same: Flags, key: Sequence[str], doing: str) -> None:
    """Refuses events of one key that are not one row's: two that come or go in turn, or another row that goes."""
    wrong = same & (sign[1:] == sign[:-1])
    goes = np.flatnonzero(same & (sign[:-1] > 0) & (sign[1:] < 0))
    came, went = rows.take(pa.array(goes)), rows.take(pa.array(goes + 1))
    for name in rows.column_names:
        wrong[goes] |= unequal(came.column(name), went.column(name))
    if wrong.any():
        raise ChangesError(
            f"events of one key don't follow from each other: {show(rows.select(list(key)), np.flatnonzero(wrong))}",
            doing=doing,
            hint="Choose a key that is unique in the table, or read the log without the gap in it",
        )


def cdf_changes(table: Any, since: int, until: int | None, key: Sequence[str]) -> ChangeSet:
    """What a Delta table's change data feed tells from version `since` (exclusive) to `until` (inclusive)."""
    with extra("delta", "reading a change data feed"):
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

    doing = "reading a change data feed"
    try:
        opened = table if isinstance(table, DeltaTable) else DeltaTable(os.fspath(table))
        last = opened.version() if until is None else until
        if not 0 <= since <= last <= opened.version():
            raise InputError(
                f"from version {since} to {last} there is nothing", doing=doing, hint=f"The last is {opened.version()}"
            )
        if last < opened.version() and opened is not table:
            opened.load_as_version(last)  # a feed is read in the columns of the version that is open
        if since == last:
            schema = relation_schema(pa.schema(opened.schema().to_arrow()))
            rows, signs, moments = schema.empty_table(), np.zeros(0, np.int64), np.zeros(0, np.int64)
        else:
            feed = pa.table(opened.load_cdf(starting_version=since + 1, ending_version=last))
            feed = feed.cast(relation_schema(feed.schema))
            rows, signs, moments = _of_feed(feed, doing)
    except (DeltaError, OSError, ValueError) as error:
        raise FormatError(
            " ".join(str(error).split())[:300],
            doing=doing,
            hint="Give a Delta table whose log and files still have these versions",
        ) from None
    return net_of_events(rows, signs, moments, key, doing)


def _of_feed(feed: pa.Table, doing: str) -> tuple[pa.Table, Positions, Positions]:
    kinds = pc.index_in(feed.column(KIND), pa.array(list(SIGNS)))
    if kinds.null_count:
        raise FormatError(f"a line of the feed has none of the kinds {', '.join(SIGNS)}", doing=doing)
    signs = np.asarray(list(SIGNS.values()), dtype=np.int64)[np.asarray(kinds, dtype=np.int64)]
    return feed.drop_columns([KIND, VERSION, TIME]), signs, np.asarray(feed.column(VERSION), dtype=np.int64)


def debezium_changes(source: Any, key: Sequence[str], schema: pa.Schema | None = None) -> ChangeSet:
    """What the messages of a topic tell, in their order: a file of JSON lines (which gzip may have packed), or
    messages as texts or dictionaries.

    With and without the envelope of a schema. All rows have the same columns, and tombstones mean nothing.
    """
    doing = "reading Debezium's messages"
    images: list[dict[str, Any]] = []
    signs: list[int] = []
    moments: list[int] = []
    columns: Set[str] = set() if schema is None else set(schema.names)
    for number, payload in enumerate(_payloads(source, doing), start=1):
        for sign, image in _images(payload, number, doing):
            columns = columns or image.keys()
            _check_whole(image, columns, f"message {number} ({payload['op']})", doing)
            images.append(image)
            signs.append(sign)
            moments.append(number)
    try:
        rows = pa.Table.from_pylist(images) if schema is None else _typed(images, schema)
    except (SchemaError, pa.ArrowException, ArithmeticError, ValueError, TypeError, AttributeError) as error:
        problem = "rows don't have one type that holds them" if schema is None else "rows don't fit the schema"
        hint = _SCHEMA if schema is None else "Give the types that the messages have"
        raise FormatError(f"{problem}: {error}", doing=doing, hint=hint) from None
    if not images and schema is None:
        raise InputError("there is no message, so the columns are not known", doing=doing, hint="Give the schema")
    return net_of_events(rows, np.asarray(signs, np.int64), np.asarray(moments, np.int64), key, doing)


def _typed(images: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of the types of a schema, from what JSON holds of them: see `_value`."""
    columns = [array_of([_value(image[field.name], field.type) for image in images], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _value(value: Any, type_: pa.DataType) -> Any:
    """A value of a type, where JSON holds it as a text: bytes in base64, decimals, times in ISO form, NaN and the
    infinities. The texts are those that the layout `debezium` writes.
    """
    if value is None:
        return None
    if pt.is_dictionary(type_):
        return _value(value, type_.value_type)
    if pt.is_struct(type_):
        if value.keys() != {field.name for field in type_}:
            raise ValueError(f"an object has the fields {', '.join(value)}, and {type_} others")
        return {field.name: _value(value[field.name], field.type) for field in type_}
    if pt.is_map(type_):
        entries = value.items() if isinstance(value, dict) else value
        return [(_value(key, type_.key_type), _value(item, type_.item_type)) for key, item in entries]
    if pt.is_nested(type_):
        return [_value(each, type_.value_type) for each in value]
    if not isinstance(value, str) or is_text(type_):
        return value
    if is_bytes(type_):
        return base64.b64decode(value, validate=True)
    if pt.is_decimal(type_):
        return Decimal(value)
    if pt.is_floating(type_):
        return float(value)
    return convert_text(pa.array([value]), type_, "value", empty_is_null=False)[0]


def _check_whole(image: dict[str, Any], columns: Set[str], where: str, doing: str) -> None:
    """Refuses an image of other columns than the rest: what an absent one holds is not known."""
    if differing := sorted(columns ^ image.keys()):
        raise FormatError(
            f"{where} has other columns than the messages before it or the schema: {', '.join(differing)}",
            doing=doing,
            hint="Rows have to be whole (in PostgreSQL, ALTER TABLE … REPLICA IDENTITY FULL); read the messages before "
            "and after a column was added apart",
        )
    if absent := [name for name, value in image.items() if value in _UNAVAILABLE]:
        raise FormatError(
            f"{where} does not have the value of {', '.join(absent)}, which is large and was not sent",
            doing=doing,
            hint="Let the source send it: in PostgreSQL, ALTER TABLE … REPLICA IDENTITY FULL",
        )


def _payloads(source: Any, doing: str) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(_messages(source, doing), start=1):
        try:
            payload = json.loads(message) if isinstance(message, (str, bytes)) else message
        except ValueError as error:
            hint = "Each line is one message, as JSON"
            raise FormatError(f"line {number} is no JSON: {error}", doing=doing, hint=hint) from None
        if payload is None:
            continue  # a tombstone, which only tells Kafka to forget the key
        if isinstance(payload, dict) and "payload" in payload:
            payload = payload["payload"]
        if payload is None:
            continue
        if not isinstance(payload, dict) or "op" not in payload:
            raise FormatError(f"line {number} is no message of Debezium's: it has no op", doing=doing)
        yield payload


def _messages(source: Any, doing: str) -> Iterable[Any]:
    if not isinstance(source, (str, os.PathLike)):
        yield from source
        return
    path = os.fspath(source)
    if is_stream(path):
        with Spool() as spool:
            yield from _lines(catch_stream(path, spool), doing)
        return
    if not os.path.exists(path):
        raise missing(path)
    yield from _lines(path, doing)


def _lines(path: str, doing: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        lines = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else file
        try:
            yield from (line for line in lines if line.strip())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"the file can't be unpacked: {error}", doing=doing) from None


def _images(payload: dict[str, Any], number: int, doing: str) -> list[tuple[int, dict[str, Any]]]:
    op, before, after = payload["op"], payload.get("before"), payload.get("after")
    if op in _CREATES and after is not None:
        return [(1, after)]
    if op in _UPDATES and before is not None and after is not None:
        return [(-1, before), (1, after)]
    if op in _DELETES and before is not None:
        return [(-1, before)]
    if op in (*_UPDATES, *_DELETES):
        raise InputError(
            f"message {number} ({op}) has no before image",
            doing=doing,
            hint="Let the source send it: in PostgreSQL, ALTER TABLE … REPLICA IDENTITY FULL",
        )
    raise InputError(f"message {number} is a {op!r}, which is no change of a row", doing=doing)

"""Whether a base's copy equals its query, row by row; and the differential that makes it so where it does not.

Both sides are read once, in batches, the base in another way than copies are filled by. Copies take values as their
drivers give them. Here the base's own SQL makes a text of each value, by arithmetic or as hexadecimal digits, and the
texts are read without the driver's types: what one way gets wrong, the other does not. What is kept of a row is its
address and its signature, 24 bytes. Rows that have to be sent are read in a second pass over the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import Damaged, SchemaError, StorageError
from strandline.relations import TableColumn
from strandline.replication.definition import ABOVE, UPTO, CopyDefinition
from strandline.replication.senders.annotated.base_table import ADDRESS
from strandline.replication.senders.annotated.catalog import BaseCopyRecord
from strandline.replication.senders.annotated.fix_up import (
    BaseSite,
    chosen_columns,
    enter_given,
    row_batches,
    rows_schema,
)
from strandline.replication.senders.annotated.program import ALL, all_rows
from strandline.replication.targets import CopyTarget
from strandline.replication.verification import Verification
from strandline.values import Numbers, no_rows, quoted, row_signatures, scheme_of


@dataclass(frozen=True)
class TextForm:
    """One column: the expression of its name that gives a text, and what makes values of the texts."""

    sql: str
    parse: Callable[[pa.Array, pa.DataType], pa.Array] = pa.Array.cast


def text_expressions(site: BaseSite, columns: Sequence[str]) -> list[str]:
    """The expressions that `batches_by_text` reads."""
    return [_of(column, site).sql.format(quoted(column.name)) for column in chosen_columns(site, columns)]


def batches_by_text(site: BaseSite, columns: Sequence[str], sql: str) -> Iterator[pa.RecordBatch]:
    """What `sql` selects, the address and these expressions, in the columns' own types."""
    chosen, wanted = chosen_columns(site, columns), rows_schema(site, columns)
    texts = pa.schema([(ADDRESS, pa.int64()), *((column.name, pa.string()) for column in chosen)])
    for batch in site.table.database.batches(sql, texts):
        arrays = [_parsed(batch.column(place), column, site) for place, column in enumerate(chosen, 1)]
        yield pa.RecordBatch.from_arrays([batch.column(0), *arrays], schema=wanted)


def _of(column: TableColumn, site: BaseSite) -> TextForm:
    return _in_postgres(column) if site.table.database.dialect == "postgres" else _in_sqlite(column)


def _parsed(texts: pa.Array, column: TableColumn, site: BaseSite) -> pa.Array:
    try:
        return _of(column, site).parse(texts, column.type)
    except (pa.ArrowInvalid, ValueError) as error:
        raise StorageError(
            f"column {column.name!r} holds a value that is no {column.type}: {error}",
            doing=f"reading {site.table.address.shown}",
            hint="Give the row another value, or leave the column out",
        ) from None


def _in_postgres(column: TableColumn) -> TextForm:
    kind = column.type
    if pt.is_boolean(kind):
        return TextForm("CAST({} AS int)::text", _bools)
    if pt.is_floating(kind):
        return TextForm(f"encode(float{kind.bit_width // 8}send({{}}), 'hex')", _float_bits)
    if pt.is_decimal(kind):
        return TextForm(f"trunc({{}} * 1{'0' * kind.scale})::text", _unscaled)
    if pt.is_date(kind):
        return TextForm("({} - DATE '1970-01-01')::text", _days)
    if pt.is_temporal(kind):
        return TextForm("CAST(extract(epoch FROM {}) * 1000000 AS bigint)::text", _microseconds)
    if pt.is_binary(kind):
        return TextForm("encode({}, 'hex')", _digits)
    return TextForm("{}::text")


def _in_sqlite(column: TableColumn) -> TextForm:
    kind = column.type
    if column.reading != "{}":
        return TextForm(column.reading)
    if pt.is_boolean(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)"), _bools)
    if pt.is_integer(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)"))
    if pt.is_floating(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)", real="printf('%!.17g', {0})", text="{0}"))
    if pt.is_binary(kind):
        return TextForm(_by_type(blob="hex({0})"), _digits)
    return TextForm(_by_type(text="hex({0})"), _digits)


def _by_type(**cases: str) -> str:
    """A text for values of these types of SQLite's; others give the type's name, which is no value."""
    whens = " ".join(f"WHEN '{kind}' THEN {sql}" for kind, sql in cases.items())
    return f"CASE typeof({{0}}) {whens} WHEN 'null' THEN NULL ELSE typeof({{0}}) END"


def _bools(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    strange = set(texts.to_pylist()) - {"0", "1", None}
    if strange:
        raise ValueError(f"{strange.pop()!r}")
    return texts.cast(pa.int64()).cast(kind)


def _days(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(pa.int32()).cast(kind)


def _microseconds(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(pa.int64()).cast(kind)


def _unscaled(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The number without its point has the same bits."""
    whole = texts.cast(pa.decimal128(38, 0))
    return pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)


def _float_bits(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    none = "0" * (kind.bit_width // 4)
    digits = "".join(text or none for text in texts.to_pylist())
    values = np.frombuffer(bytes.fromhex(digits), dtype=f">f{kind.bit_width // 8}")
    return pa.array(values.astype(values.dtype.newbyteorder("=")), kind, mask=np.asarray(texts.is_null()))


def _digits(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes, or a text's bytes, by their hexadecimal digits."""
    values = [None if text is None else bytes.fromhex(text) for text in texts.to_pylist()]
    return pa.array(values, pa.binary()).cast(kind)


SHOWN = 10


@dataclass(frozen=True)
class CopyComparison:
    """The addresses at which base and copy differ: those that go, and those that come."""

    verification: Verification
    gone: Numbers
    coming: Numbers

    @property
    def ranges(self) -> pa.Table:
        return pa.table({ABOVE: pa.array(self.gone - 1), UPTO: pa.array(self.gone)})


def verify(site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, definition: CopyDefinition) -> Verification:
    """The comparison, or what stands in its way."""
    record = site.record()
    if record.key.given:
        with site.table.database.transaction():
            enter_given(site, record)
    damaged = tuple(replica.damage())
    if damaged:
        return Verification(copy.held, damaged=damaged)
    try:
        return compare(site, copy, replica, definition).verification
    except _UnreadableError as error:
        return Verification(copy.held, damaged=(str(error),))


def compare_mended(
    site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, definition: CopyDefinition
) -> CopyComparison:
    """The comparison with what is left of the copy once everything is left out that can't be read."""
    if replica.damage():
        replica.mend()
    try:
        return compare(site, copy, replica, definition)
    except _UnreadableError:
        replica.mend()
        return compare(site, copy, replica, definition)


def compare(site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, definition: CopyDefinition) -> CopyComparison:
    """Both sides by address and row signature (128 bits). An address that the copy holds twice is a different one."""
    wanted = _signed(_wanted_again(site, copy), ADDRESS, definition)
    held = _signed(_held(replica), definition.identity[0], definition)
    missing = np.setdiff1d(wanted.address, held.address)
    extra = np.setdiff1d(held.address, wanted.address)
    different = _different(wanted, held)
    unlike = np.sort(np.concatenate([missing, extra, different]))
    shown = tuple(unlike[:SHOWN].tolist())
    verification = Verification(len(wanted.address), len(missing), len(extra), len(different), addresses=shown)
    gone, coming = np.sort(np.concatenate([extra, different])), np.sort(np.concatenate([missing, different]))
    return CopyComparison(verification, gone, coming)


def differing_rows(site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, definition: CopyDefinition) -> int:
    """How many addresses differ, by the values themselves; all rows are held. An unreadable copy differs in each."""
    wanted = _by_address(_wanted_again(site, copy), ADDRESS, definition)
    try:
        held = _by_address(_held(replica), definition.identity[0], definition)
    except _UnreadableError:
        return max(len(wanted), 1)
    return sum(wanted.get(address) != held.get(address) for address in wanted.keys() | held.keys())


def _by_address(
    batches: Iterable[pa.RecordBatch], address: str, definition: CopyDefinition
) -> dict[int, list[tuple[Any, ...]]]:
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for batch in batches:
        columns = [_values(batch.column(name)) for name in definition.schema.names]
        for place, row in zip(batch.column(address).to_pylist(), zip(*columns, strict=True), strict=True):
            rows.setdefault(place, []).append(row)
    return rows


def _values(column: pa.Array) -> list[Any]:
    """As Python compares them; NaN equals itself, and instants are counted, since Python does not have all of them."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    values: list[Any] = column.to_pylist()
    return ["NaN" if value != value else value for value in values] if pa.types.is_floating(column.type) else values


def rows_at(site: BaseSite, copy: BaseCopyRecord, addresses: Numbers) -> pa.Table:
    """What the base has at these addresses for the copy."""
    schema = rows_schema(site, copy.columns)
    if not len(addresses):
        return no_rows(schema)
    chosen = pa.array(addresses, pa.int64())
    batches = [batch.filter(pc.is_in(batch.column(ADDRESS), chosen)) for batch in _wanted(site, copy)]
    return pa.Table.from_batches(batches, schema=schema)


@dataclass(frozen=True)
class _Signed:
    """Rows by address, in order: each as often as it is there."""

    address: Numbers
    words: npt.NDArray[Any]


def _wanted(site: BaseSite, copy: BaseCopyRecord) -> Iterator[pa.RecordBatch]:
    return row_batches(site, copy.columns, site.copy_program(site.record(), copy).texts[ALL])


def _wanted_again(site: BaseSite, copy: BaseCopyRecord) -> Iterator[pa.RecordBatch]:
    """What the copy should hold, read in another way than it was when it was sent."""
    statements = site.statements(site.record(), copy)
    sql = all_rows(statements, text_expressions(site, copy.columns))
    return batches_by_text(site, copy.columns, sql)


class _UnreadableError(Exception):
    """The copy holds something that is no row of it."""


def _held(replica: CopyTarget) -> Iterator[pa.RecordBatch]:
    try:
        yield from replica.rows()
    except (Damaged, StorageError, SchemaError) as error:
        raise _UnreadableError(error.why) from None


def _signed(batches: Iterable[pa.RecordBatch], address: str, definition: CopyDefinition) -> _Signed:
    scheme = scheme_of(definition.schema, bits=128)
    addresses, words = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.uint64)]
    for batch in batches:
        addresses.append(np.asarray(batch.column(address), dtype=np.int64))
        words.append(np.asarray(row_signatures(pa.Table.from_batches([batch]), scheme), dtype=np.uint64))
    together = np.concatenate(addresses)
    order = np.argsort(together, kind="stable")
    return _Signed(together[order], np.concatenate(words)[order])


def _different(wanted: _Signed, held: _Signed) -> Numbers:
    """Addresses of both whose rows differ."""
    addresses, first, times = np.unique(held.address, return_index=True, return_counts=True)
    common, here, there = np.intersect1d(wanted.address, addresses, assume_unique=True, return_indices=True)
    unlike = np.any(wanted.words[here] != held.words[first[there]], axis=1) | (times[there] > 1)
    differing: Numbers = common[unlike]
    return differing

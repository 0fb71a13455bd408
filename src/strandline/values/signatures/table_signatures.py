"""Signatures of whole tables under a scheme."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.errors import StateError
from strandline.values.signatures.numpy_engine import Words
from strandline.values.signatures.scheme import Scheme, kind_of
from strandline.values.signatures.sl2 import Column, EngineName, second_seed, signature
from strandline.values.type_unification import is_list


def row_signatures(table: pa.Table | pa.RecordBatch, scheme: Scheme, engine: EngineName = "auto") -> Words:
    """The signature of each row over the scheme's columns, in the scheme's bits.

    Up to 64 bits: one word per row, shape (rows,). Above: two, low word first, shape (rows, 2).
    """
    return _truncate(scheme, [at_recorded_scale(table.column(name), scheme, name) for name in scheme.columns], engine)


def column_row_signatures(
    table: pa.Table | pa.RecordBatch, scheme: Scheme, engine: EngineName = "auto"
) -> dict[str, Words]:
    """For each of the scheme's columns, the signatures of the rows made of that column alone."""
    return {
        name: _truncate(scheme, [at_recorded_scale(table.column(name), scheme, name)], engine)
        for name in scheme.columns
    }


def at_recorded_scale(column: Column, scheme: Scheme, name: str) -> Column:
    """The column with its decimals at the scale that the scheme recorded; itself if they are already."""
    kind = scheme.kinds[scheme.columns.index(name)]
    if kind_of(column.type) == kind:
        return column
    target = _rescaled(column.type, _scales(kind))
    if kind_of(target) != kind:
        raise StateError(
            f"column {name} holds {kind_of(column.type)}, and the signatures were made for {kind}",
            doing="computing row signatures",
            hint="Make a new scheme for the new schema",
        )
    try:
        return column.cast(target)
    except pa.ArrowInvalid as problem:
        raise StateError(
            f"column {name} holds decimals that do not fit the recorded {kind}: {problem}",
            doing="computing row signatures",
            hint="Make a new scheme for the new schema",
        ) from problem


def _truncate(scheme: Scheme, columns: list[Column], engine: EngineName) -> Words:
    """Signatures of as many bits as the scheme has."""
    low = signature(columns, scheme.seed, engine)
    if scheme.words == 1:
        return low if scheme.bits == 64 else low & np.uint64(2**scheme.bits - 1)
    high = signature(columns, second_seed(scheme.seed), engine)
    return np.stack([low, high & np.uint64(2 ** (scheme.bits - 64) - 1)], axis=1)


def _scales(kind: str) -> list[int]:
    """The scales of the decimals in a kind, from left to right; what stands in quotes is a field's name."""
    bare, quoted = [], False
    previous = ""
    for letter in kind:
        if letter == '"' and previous != "\\":
            quoted = not quoted
        elif not quoted:
            bare.append(letter)
        previous = "" if previous == "\\" else letter
    parts = "".join(bare).split("decimal(")[1:]
    return [int(part.split(")")[0]) for part in parts]


def _rescaled(type_: pa.DataType, scales: list[int]) -> pa.DataType:
    """The type with its decimals, from left to right, at the given scales and wide enough for any value."""
    if pa.types.is_decimal(type_):
        return pa.decimal256(76, scales.pop(0)) if scales else type_
    if pa.types.is_dictionary(type_):
        return _rescaled(type_.value_type, scales)
    if pa.types.is_map(type_):
        key = _rescaled(type_.key_type, scales)
        return pa.map_(key, _rescaled(type_.item_type, scales))
    if is_list(type_):
        return pa.large_list(_rescaled(type_.value_type, scales))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _rescaled(field.type, scales)) for field in type_])
    return type_

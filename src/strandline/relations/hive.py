"""Columns that stand in folder names: `day=2024-01-31/part-0.parquet`.

Their types are guessed over all the folders by the rules of `text`, unless given. A column that the files hold
themselves is read from the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from strandline.errors import SchemaError
from strandline.relations.files import DataFile
from strandline.relations.options import ReadOptions
from strandline.relations.text import convert_text, guess_type


def hive_constants(
    files: Sequence[DataFile], held: Sequence[str], options: ReadOptions
) -> tuple[list[dict[str, str | None]], list[pa.Field]]:
    """For each file the constants that its folders give (less the columns `held` in files), and their fields."""
    columns = list(dict.fromkeys(name for file in files for name in file.hive if name not in held))
    if not options.union_by_name:
        for file in files:
            lacking = [name for name in columns if name not in file.hive]
            if lacking:
                raise SchemaError(
                    f"{file.path} is in no folder {lacking[0]}=…, other files are",
                    doing="reading hive folders as one relation",
                    hint="Read with union_by_name to take null for it, or with hive=False to ignore folder names",
                )
    constants = [{name: file.hive.get(name) for name in columns} for file in files]
    given = options.arrow_types()
    fields = [
        pa.field(name, given.get(name) or guess_type([constant[name] for constant in constants])) for name in columns
    ]
    return constants, fields


def constant_value(text: str | None, field: pa.Field) -> pa.Scalar:
    """The typed value of a constant."""
    return convert_text(pa.array([text], pa.string()), field.type, field.name)[0]


def with_constants(
    batch: pa.RecordBatch, constants: Mapping[str, str | None], fields: list[pa.Field]
) -> pa.RecordBatch:
    """The batch with constant columns appended."""
    arrays = [pa.repeat(constant_value(constants[field.name], field), batch.num_rows) for field in fields]
    if not arrays:
        return batch
    return pa.record_batch([*batch.columns, *arrays], schema=pa.schema([*batch.schema, *fields]))

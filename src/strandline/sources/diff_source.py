"""The data source `strandline.diff`: what changed between two extracts, as rows.

The differential runs once, in the process that called `register`, when `load()` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from strandline.errors import InputError
from strandline.sources.change_rows import ChangeRows
from strandline.sources.holding import Address, Holdings, Parts, ask
from strandline.sources.options import DIFF_EXAMPLE, DIFFING, check_known, names, plainly, required
from strandline.sources.table_source import chosen, struct_of

DOING = "comparing two extracts"


class DiffSource(DataSource):  # type: ignore[misc]
    """See the module. `keeper` is set by `register`."""

    keeper: ClassVar[Address | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parts: Parts | None = None

    @classmethod
    def name(cls) -> str:
        return "strandline.diff"

    def schema(self) -> StructType:
        with plainly():
            return struct_of(self._computed().header.rows_schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            parts = self._computed()
            return ChangeRows(parts, chosen(parts.header.rows_schema, schema, DOING))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plainly():
            raise InputError("it can only be read", doing="writing to strandline.diff", hint='Use format("strandline")')

    def _computed(self) -> Parts:
        if self._parts is None:
            old = required(self.options, "old", DOING, DIFF_EXAMPLE)
            new = required(self.options, "new", DOING, DIFF_EXAMPLE)
            self._parts = ask(self.keeper, Holdings.diff, old, new, diff_options(self.options))
        return self._parts


def diff_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as `sl.diff` takes them."""
    check_known(options, DIFFING, DOING, DIFF_EXAMPLE)
    given: dict[str, Any] = {
        name: options[name] for name in ("algorithm", "where", "duplicates", "memory") if name in options
    }
    given |= {name: names(options.get(name)) for name in ("columns", "ignore") if name in options}
    if "format" in options:
        given |= {"old_format": options["format"], "new_format": options["format"]}
    return {**given, "key": names(options.get("key")) or None}

"""Copies as folders of Parquet, bare or as Delta and Iceberg tables. A message rewrites the parts that hold rows it
takes away, and adds one of its own.

Parts are small enough to rewrite and large enough to read (`PART_ROWS`); small ones are folded together once there are
several. With addresses, the manifest's bounds keep parts that a message can't concern from being opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNTED, KEYED
from strandline.errors import ChangesError, Damaged, InputError, NotFound
from strandline.relations import Address
from strandline.replication.copy_state import CopyState, Evolution, after, is_new, the_same
from strandline.replication.definition import COUNT, RANGES, SIGNATURE, CopyDefinition, check_no_null_keys, signed
from strandline.replication.message import LOAD, Emptying, Message, refuse_statements
from strandline.replication.targets.parquet_folder import FolderManifest, FolderPart, ParquetFolder, going
from strandline.storage import Closeable
from strandline.values import Flags, row_signatures, scheme_of

PART_ROWS = 131_072
SMALL_PARTS = 8


class ParquetTarget(Closeable):
    """A copy as a folder of Parquet, bare or with a log that says which files count."""

    def __init__(self, address: Address, folder: ParquetFolder, *, create: bool = True) -> None:
        self._address = address
        self._folder = folder
        if not create and not os.path.isdir(address.location):
            raise NotFound(f"there is no folder {address.scrub(address.location)}", doing=f"opening {address.shown}")

    @property
    def shown(self) -> str:
        return self._address.shown

    def state(self) -> CopyState | None:
        return CopyState.from_text(self._folder.read().state) if self._folder.exists() else None

    def create(self, definition: CopyDefinition) -> CopyState:
        self._folder.check_holdable(definition)
        if os.path.isdir(self._folder.path) and self._folder.is_foreign():
            raise InputError(
                "the folder already holds something that is no copy of ours",
                doing=f"replicating to {self.shown}",
                hint="Choose an empty folder",
            )
        self._folder.make()
        with self._folder.locked():
            existing = self.state()
            if existing is not None:
                return the_same(existing, definition, self.shown)
            state = CopyState(definition)
            self._folder.commit(FolderManifest(state.to_text()))
        return state

    def evolve(self, definition: CopyDefinition) -> str:
        """Its files are written again, at the target; the manifest takes them all at once."""
        self._folder.check_holdable(definition)
        with self._writing() as (manifest, state):
            self._folder.check_layout(state.definition)
            evolution = Evolution(state.definition, definition)
            parts: list[FolderPart] = []
            for part in manifest.parts:
                parts += self._write(definition, evolution.stored(self._read(part, state.definition)))
            manifest = replace(going(manifest, tuple(parts)), loading=(), state=evolution.state(state).to_text())
            self._folder.commit(manifest)
        return ""

    def claim(self) -> CopyState:
        with self._writing() as (manifest, state):
            state = replace(state, epoch=state.epoch + 1)
            self._folder.commit(replace(manifest, state=state.to_text(), going=()))
        return state

    def apply(self, message: Message) -> CopyState:
        with self._writing() as (manifest, state):
            if not is_new(state, message):
                return state
            refuse_statements(message)
            self._folder.check_layout(state.definition)
            check_no_null_keys(state.definition, message.rows)
            manifest = replace(manifest, going=())
            if message.kind == LOAD:
                manifest = self._load(manifest, state.definition, message)
            else:
                manifest = self._change(manifest, state.definition, message)
            state = after(state, message)
            self._folder.commit(replace(manifest, state=state.to_text()))
        return state

    def rows(self) -> Iterator[pa.RecordBatch]:
        state = self.state()
        if state is not None:
            self._folder.check_layout(state.definition)
            for part in self._folder.read().parts:
                yield from self._read(part, state.definition).to_batches()

    def damage(self) -> Sequence[str]:
        if not self._folder.exists():
            return ()
        manifest = self._folder.read()
        missing = [f"{part.name} is gone" for part in manifest.parts if not self._folder.has(part)]
        return [*missing, *(f"{name} is not one of the copy's files" for name in self._folder.strays(manifest))]

    def mend(self) -> None:
        with self._writing() as (manifest, state):
            whole = tuple(part for part in manifest.parts if self._readable(part, state.definition))
            self._folder.commit(going(replace(manifest, going=()), whole, self._folder.strays(manifest)))

    def _readable(self, part: FolderPart, definition: CopyDefinition) -> bool:
        try:
            self._read(part, definition)
        except Damaged:
            return False
        return True

    def checksums(self) -> None:
        """Its files are read here."""

    def count(self) -> int:
        return sum(part.rows for part in self._folder.read().parts) if self._folder.exists() else 0

    def drop(self) -> None:
        if self._folder.exists():
            with self._folder.locked():
                self._folder.remove(self._folder.read())

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def _writing(self) -> Iterator[tuple[FolderManifest, CopyState]]:
        """Holds the folder's lock and gives what counts now."""
        if not self._folder.exists():
            raise NotFound("there is no copy", doing=f"writing to {self.shown}", hint="Replicate to it first")
        with self._folder.locked():
            manifest = self._folder.read()
            yield manifest, CopyState.from_text(manifest.state)

    def _read(self, part: FolderPart, definition: CopyDefinition) -> pa.Table:
        return self._folder.load(part, definition.schema, definition.ours)

    def _write(self, definition: CopyDefinition, rows: pa.Table) -> list[FolderPart]:
        written = []
        if (
            definition.form == COUNTED
        ):  # nobody reads a folder through a view: equal rows stand there as often as they are
            counts = np.asarray(rows.column(COUNT), dtype=np.int64)
            rows = rows.take(pa.array(np.repeat(np.arange(len(rows)), counts)))
            rows = rows.set_column(rows.column_names.index(COUNT), COUNT, pa.array(np.ones(len(rows), dtype=np.int64)))
        for start in range(0, len(rows), PART_ROWS):
            piece = rows.slice(start, PART_ROWS)
            bounds = None
            if definition.form == RANGES:
                ends = pc.min_max(piece.column(definition.identity[0])).as_py()
                bounds = (int(ends["min"]), int(ends["max"]))
            ours = piece.select(definition.ours.names) if len(definition.ours) else None
            written.append(self._folder.write(piece.select(definition.schema.names), ours, bounds))
        return written

    def _load(self, manifest: FolderManifest, definition: CopyDefinition, message: Message) -> FolderManifest:
        rows = signed(definition, message.rows) if definition.form == COUNTED else message.rows
        loading = () if message.first else manifest.loading
        loading = (*loading, *self._write(definition, rows))
        if not message.last:
            return replace(manifest, loading=loading)
        return replace(going(manifest, loading), loading=())

    def _change(self, manifest: FolderManifest, definition: CopyDefinition, message: Message) -> FolderManifest:
        coming = message.rows
        kept: list[FolderPart] = []
        left: list[pa.Table] = []
        going_rows = _Going(definition, message)
        small = [part for part in manifest.parts if part.rows < PART_ROWS // 2]
        fold = {part.name for part in small} if len(small) > SMALL_PARTS else set()
        for part in manifest.parts:
            mask = going_rows.mask(part, self._folder)
            if part.name not in fold and (mask is None or not mask.any()):
                kept.append(part)
                continue
            rows = self._read(part, definition)
            counted = definition.form == COUNTED  # its counts are added up below: all its rows stay until then
            left.append(rows if mask is None or counted else rows.filter(pa.array(~mask)))
        if definition.form == COUNTED:
            coming, left = self._added_up(definition, [*left, going_rows.delta]), []
        whole = pa.concat_tables([*left, coming.select(definition.stored.names)])
        if definition.form == RANGES and len(whole):
            whole = whole.sort_by(definition.identity[0])
        return going(manifest, (*kept, *self._write(definition, whole)))

    def _added_up(self, definition: CopyDefinition, tables: Sequence[pa.Table]) -> pa.Table:
        whole = signed(definition, pa.concat_tables([table.select(definition.stored.names) for table in tables]))
        counts = whole.column(COUNT)
        if pc.any(pc.less(counts, 0)).as_py():
            raise ChangesError(
                "it removes rows that the copy does not hold",
                doing=f"writing to {self.shown}",
                hint="The copy was edited by hand: repair it",
            )
        return whole.filter(pc.greater(counts, 0))


class _Going:
    """Which stored rows a message takes away."""

    def __init__(self, definition: CopyDefinition, message: Message) -> None:
        self._definition = definition
        if definition.form == RANGES:
            self._emptying = Emptying(message.gone)
        elif definition.form == KEYED:
            keys = pa.concat_tables([message.gone, message.rows.select(message.gone.column_names)])
            self._keys = _key_words(keys, definition)
        else:
            minus = message.gone.set_column(0, COUNT, pc.negate(message.gone.column(COUNT)))
            self.delta = signed(definition, pa.concat_tables([minus, message.rows]))

    def mask(self, part: FolderPart, folder: ParquetFolder) -> Flags | None:
        """Which rows of the part go, or (counted) change; None when none can."""
        definition = self._definition
        if definition.form == RANGES:
            known = part.least is not None and part.greatest is not None
            if known and not self._emptying.concerns(part.least or 0, part.greatest or 0):
                return None
            chosen = pa.schema([definition.schema.field(name) for name in definition.key])
            addresses = folder.load(part, chosen, definition.ours).column(definition.identity[0])
            return self._emptying.holds(np.asarray(addresses, dtype=np.int64))
        if definition.form == KEYED:
            keys = folder.load(part, definition.gone_schema, definition.ours)
            return np.isin(_key_words(keys, definition), self._keys)
        signatures = folder.load(part, pa.schema([]), definition.ours).column(SIGNATURE)
        return np.asarray(pc.is_in(signatures, self.delta.column(SIGNATURE).combine_chunks()), dtype=bool)


def _key_words(keys: pa.Table, definition: CopyDefinition) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    words = row_signatures(keys, scheme_of(definition.gone_schema, bits=128))
    return np.ascontiguousarray(words).view([("low", np.uint64), ("high", np.uint64)]).reshape(-1)

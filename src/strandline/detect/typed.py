"""Scans for an exchange: the columns of one side, those that rows meet by in the type that both sides share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from strandline.detect.question import Question
from strandline.relations import Scan


def typed_scans(question: Question, name: str, by: Sequence[str]) -> tuple[list[Scan], list[str]]:
    """The scans of the "old" or the "new" side, and what the columns of `by` are called in them."""
    given = question.old if name == "old" else question.new
    shared = question.comparison.header.after_schema
    files = given.file_names()
    scans = []
    for scan in given.scans():
        fields = [scan.schema.field(column) for column in given.side.columns]
        typed = [
            field.with_type(shared.field(here).type) if here in by else field
            for here, field in zip(given.side.names, fields, strict=True)
        ]
        scans.append(replace(scan, schema=pa.schema(typed)))
    return scans, [files[column] for column in by]

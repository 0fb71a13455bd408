"""Differential refresh of any annotated relation, on Spark or in this process: ranges of addresses as work items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.parts import read_parts
from strandline.changes.shape import check_columns
from strandline.detect.annotated.kernels import Carry, Survey, carried, refresh_range, survey
from strandline.detect.annotated.paper import START
from strandline.engine import Spool, choose_runner
from strandline.errors import KeysError
from strandline.relations import Part, open_relation
from strandline.relations.expressions import parse_condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWEST, HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Question:
    """What is asked of an annotated relation. `names` says which columns hold address, previous address and time."""

    snap_time: int
    now: int
    where: str | None = None
    columns: Sequence[str] | None = None
    names: Mapping[str, str] = field(
        default_factory=lambda: {name: f"_strandline_{name}" for name in ("address", "previous", "time")}
    )


@dataclass(frozen=True)
class Answer:
    """`messages`: address (null: the end), previous, and the chosen columns, in address order. `fixed`: the new
    annotations of the entries whose annotations change."""

    messages: pa.Table
    fixed: pa.Table


def refresh_relation(
    source: Any,
    question: Question,
    *,
    runner: str = "auto",
    session: SparkSession | None = None,
    ranges: int | None = None,
) -> Answer:
    """Figures 3 and 7 over a relation: its messages and annotations, exactly as the sequential pass gives them."""
    spool = Spool()
    relation = open_relation(source, session=session, spool=spool)
    names = dict(question.names)
    check_columns(relation.schema, list(names.values()), "finding the annotations")
    columns = _chosen(relation.schema, question)
    condition = None if question.where is None else parse_condition(question.where, relation.schema)
    common = {
        "names": names,
        "snap_time": question.snap_time,
        "now": question.now,
        "condition": None if condition is None else condition.sql,
        "condition_columns": [] if condition is None else list(condition.columns),
        "columns": columns,
    }
    running = choose_runner(runner, relation.bytes, session)
    items = _items(relation.parts([names["address"]]), names["address"], ranges or 2 * running.parallelism, common)
    surveys = [Survey(**outcome.result) for outcome in running.run(survey, items, spool, "surveying annotations")]
    carry = Carry(START, START, START)
    work = []
    for item, found in zip(items, surveys, strict=True):
        work.append({**item, "carry": asdict(carry)})
        carry = carried(carry, found)
    outcomes = running.run(refresh_range, work, spool, "refreshing")
    return _answer([outcome.result for outcome in outcomes], carry, _schema(relation.schema, columns))


def _chosen(schema: pa.Schema, question: Question) -> list[str]:
    annotations = {question.names["previous"], question.names["time"]}
    chosen = [name for name in schema.names if name not in annotations and not name.startswith("_strandline_")]
    columns = chosen if question.columns is None else list(question.columns)
    check_columns(schema, columns, "choosing the columns of a copy")
    return columns


def _schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    fields = [pa.field(name, schema.field(name).type) for name in columns]
    return pa.schema([("address", pa.int64()), ("previous", pa.int64()), *fields])


def _items(parts: Sequence[Part], address: str, ranges: int, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cuts where parts begin, so that parts that are in order are read once; a part across a cut is read twice."""
    bounds = [part.bounds.get(address) for part in parts]
    leasts = sorted(b.least for b in bounds if b is not None and b.least is not None)
    if leasts and leasts[0] <= START:
        raise KeysError(f"the address {leasts[0]} is not above {START}", doing="refreshing an annotated relation")
    step = max(len(leasts) // ranges, 1)
    cuts = sorted({least - 1 for least in leasts[step::step]}) if len(leasts) == len(parts) else []
    edges = [LOWEST, *cuts, HIGHEST]
    items = []
    for above, upto in pairwise(edges):
        scans = [
            part.scan.to_json()
            for part, bound in zip(parts, bounds, strict=True)
            if bound is None or bound.least is None or (bound.least <= upto and bound.greatest > above)
        ]
        if scans:
            items.append({**common, "above": above, "upto": upto, "scans": scans})
    return items


def _answer(results: Sequence[Mapping[str, Any]], carry: Carry, schema: pa.Schema) -> Answer:
    messages = read_parts([result["messages"] for result in results], schema)
    end = {name: pa.nulls(1, schema.field(name).type) for name in schema.names}
    end["previous"] = pa.array([carry.last_qual], pa.int64())
    fixed_schema = pa.schema([("address", pa.int64()), ("previous", pa.int64()), ("time", pa.int64())])
    fixed = read_parts([result["fixed"] for result in results], fixed_schema)
    return Answer(pa.concat_tables([messages, pa.table(end, schema=schema)]), fixed)

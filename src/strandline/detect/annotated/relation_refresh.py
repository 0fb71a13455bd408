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
from strandline.detect.annotated.marked import Tail
from strandline.detect.annotated.marked_kernels import refresh_marked, survey_marked
from strandline.detect.annotated.names import ADDRESS, MARKED, PAPER, PREVIOUS, VALUED, fields
from strandline.detect.annotated.paper import START
from strandline.engine import Spool, choose_runner
from strandline.errors import KeysError
from strandline.relations import Part, open_relation
from strandline.relations.expressions import parse_condition
from strandline.replicas.definition import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_FIELDS = {PAPER: ("address", "previous", "time"), MARKED: ("address", "previous", "time", "gap", "unheld")}


@dataclass(frozen=True)
class Question:
    """What is asked of an annotated relation. `names` says which columns hold address, previous address, time and, for
    the marked algorithm, gap and bits.

    That one wants to know more: the asking snapshot's `bit` (None: it may hold any entry), the restrictions of the
    `other` snapshots by their bits, so that fix-up can keep these too, and the base's `tail`. `where` and `columns` are
    the asking snapshot's own.
    """

    snap_time: int
    now: int
    where: str | None = None
    columns: Sequence[str] | None = None
    names: Mapping[str, str] = field(default_factory=lambda: {name: f"{PREFIX}{name}" for name in _FIELDS[MARKED]})
    algorithm: str = PAPER
    bit: int | None = None
    others: Mapping[int, str | None] = field(default_factory=dict)
    tail: Tail = field(default_factory=Tail)


@dataclass(frozen=True)
class Answer:
    """`messages`: address (null: the end), previous address, whether a value goes, and the chosen columns, in address
    order. `fixed`: the new annotations of the entries whose annotations change. `tail` is what the base remembers."""

    messages: pa.Table
    fixed: pa.Table
    tail: Tail


_KERNELS = {PAPER: (survey, refresh_range), MARKED: (survey_marked, refresh_marked)}


def refresh_relation(
    source: Any,
    question: Question,
    *,
    runner: str = "auto",
    session: SparkSession | None = None,
    ranges: int | None = None,
) -> Answer:
    """Figures 3 and 7, or the improved algorithm, over a relation: exactly what the sequential pass gives."""
    spool = Spool()
    relation = open_relation(source, session=session, spool=spool)
    names = {name: question.names[name] for name in _FIELDS[question.algorithm]}
    check_columns(relation.schema, list(names.values()), "finding the annotations")
    columns = _chosen(relation.schema, question)
    running = choose_runner(runner, relation.bytes, session)
    common = {**_common(relation.schema, question), "names": names, "columns": columns}
    items = _items(relation.parts([names["address"]]), names["address"], ranges or 2 * running.parallelism, common)
    surveying, refreshing = _KERNELS[question.algorithm]
    surveys = [Survey(**outcome.result) for outcome in running.run(surveying, items, spool, "surveying annotations")]
    carry = Carry(START, START, START)
    work = []
    for item, found in zip(items, surveys, strict=True):
        work.append({**item, "carry": asdict(carry)})
        carry = carried(carry, found)
    results = [outcome.result for outcome in running.run(refreshing, work, spool, "refreshing")]
    return _answer(results, carry, question, _schema(relation.schema, columns))


def _common(schema: pa.Schema, question: Question) -> dict[str, Any]:
    """What every range is told."""
    sql, columns = _condition(question.where, schema)
    bits = {**question.others, **({} if question.bit is None else {question.bit: question.where})}
    marked = question.algorithm == MARKED
    return {
        "snap_time": question.snap_time,
        "now": question.now,
        "condition": sql,
        "condition_columns": columns,
        "bit": question.bit,
        "refreshing": question.bit,
        "restrictions": [[bit, *_condition(where, schema)] for bit, where in bits.items()] if marked else [],
    }


def _condition(where: str | None, schema: pa.Schema) -> tuple[str | None, list[str]]:
    found = None if where is None else parse_condition(where, schema)
    return (None, []) if found is None else (found.sql, list(found.columns))


def _chosen(schema: pa.Schema, question: Question) -> list[str]:
    annotations = {question.names[name] for name in _FIELDS[question.algorithm] if name != "address"}
    chosen = [name for name in schema.names if name not in annotations and not name.startswith(PREFIX)]
    columns = chosen if question.columns is None else list(question.columns)
    check_columns(schema, columns, "choosing the columns of a copy")
    return columns


def _schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    ours = [(ADDRESS, pa.int64()), (PREVIOUS, pa.int64()), (VALUED, pa.bool_())]
    return pa.schema([*ours, *(pa.field(name, schema.field(name).type) for name in columns)])


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


def _answer(results: Sequence[Mapping[str, Any]], carry: Carry, question: Question, schema: pa.Schema) -> Answer:
    marked = question.algorithm == MARKED
    tail = Tail(carry.last_addr, question.tail.gap if carry.expect_prev == question.tail.last else question.now)
    messages = read_parts([result["messages"] for result in results], schema)
    if not marked or carry.deletion or (tail.gap or 0) > question.snap_time:
        end = {name: pa.nulls(1, schema.field(name).type) for name in schema.names}
        end |= {PREVIOUS: pa.array([carry.last_qual], pa.int64()), VALUED: pa.array([False])}
        messages = pa.concat_tables([messages, pa.table(end, schema=schema)])
    fixed_schema = pa.schema([(name, pa.int64()) for name in (ADDRESS, *fields(question.algorithm))])
    return Answer(messages, read_parts([result["fixed"] for result in results], fixed_schema), tail)

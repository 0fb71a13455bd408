"""`diff`: what changed between two extracts of a table.

The walk, in order: plan (open both sides, check schemas and key), choose an algorithm by cost, run it, verify what
signatures found if that is wanted, guard against a suspect share of changes, hand out the change set with what was
done, and put the next state in its place.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from strandline.changes import Changes, Counts, StoredChanges, filled_header
from strandline.differential import cost
from strandline.differential.cost import choose_algorithm
from strandline.differential.inputs import keys_made_one, note_of_one_source
from strandline.differential.merge import merge
from strandline.differential.options import DiffKeywords, DiffOptions, options_from
from strandline.differential.partitioned_hash import partitioned_hash
from strandline.differential.plan import DiffPlan, plan_diff
from strandline.differential.pointer_diff import pointer_diff
from strandline.differential.renames import check_renames, check_strict, spelled_options, suggest_renames
from strandline.differential.result import DiffResult, SortedParts, WorkDone
from strandline.differential.signature_diff import signature_diff
from strandline.differential.signatures import (
    SignatureSpec,
    SignatureState,
    has_state,
    is_state,
    load_state,
    save_state,
    state_lock,
)
from strandline.differential.state_build import sign_relation
from strandline.differential.window_diff import WindowMessages, window_diff, window_messages
from strandline.engine import Spool
from strandline.errors import GuardTripped, InputError, KeysError, SchemaError, StateError
from strandline.relations import names_of
from strandline.values import (
    bits_for,
    error_of_one_comparison,
    expected_runs_to_first_miss,
    kind_of,
    miss_probability,
    plain_schema,
    scheme_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiffRun:
    """What one differential did: the algorithm and why, estimates beside what was really done, how sure it is."""

    algorithm: str
    why: str
    runner: str
    seconds: float
    work: WorkDone
    estimates: tuple[cost.CostEstimate, ...]
    renames: tuple[tuple[str, str], ...] = ()
    miss_probability: float | None = None
    runs_to_first_miss: float | None = None
    missed: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class NextState:
    """Signatures of the new side, in the spool, and the folder that they go to.

    `lock` holds the state that stands there, from before it was read, so that no other run answers from it meanwhile.
    """

    state: SignatureState
    path: str
    lock: ExitStack | None = None


class Differential(Changes):
    """A change set found by `diff`: beside the changes it knows how they were found."""

    def __init__(
        self,
        stored: StoredChanges,
        spool: Spool,
        run: DiffRun,
        next_state: NextState | None = None,
        kept: SortedParts | None = None,
    ) -> None:
        super().__init__(stored, spool)
        self.run = run
        self._next_state = next_state
        self._kept = kept

    def hold_state(self, lock: ExitStack) -> None:
        """Keep a lock on the state that the next one replaces until that is in its place; without one, release it."""
        if self._next_state is None:
            lock.close()
        else:
            self._next_state = replace(self._next_state, lock=lock)

    def keep_state(self) -> None:
        """Puts what the next run starts from where it was asked to be: the new side in key order, the next state.

        Does nothing if there is neither, or the second time.
        """
        if self._kept is not None:
            self._kept.keep()
        self._kept = None
        if self._next_state is not None:
            lock = self._next_state.lock
            with lock or nullcontext():
                save_state(self._next_state.state, self._next_state.path, held=lock is not None)
        self._next_state = None

    def explain(self) -> str:
        """What each algorithm would have cost, which was taken and why, and what was really read and moved."""
        from strandline.differential.cost import explain

        return explain(self.run)


def diff(
    old: Any,
    new: Any,
    key: str | Sequence[str] | None = None,
    *,
    runner: str = "auto",
    session: SparkSession | None = None,
    **options: Unpack[DiffKeywords],
) -> Differential:
    """What changed between two extracts of a table, as a change set.

    Each side is a path (Parquet, CSV, JSON lines, Arrow, Delta, Iceberg; file, folder or glob), a list of files, a
    sheet (`book.xlsx#Sheet`), `-` or a pipe, a table of a database (`postgresql://…#table`, `sqlite:///…#table`,
    `duckdb:///…#table`, `adbc:driver:…#table`, or a query by `old_query`, `new_query`), a Spark DataFrame or anything
    that holds Arrow; `old` may also be a folder of saved signatures. Rows are matched by `key`; without one by the
    primary key of a database's table, or they are counted.
    The options are in docs/differentials.md; `strandline.differential.DiffKeywords` types them.
    """
    differential = find_changes(old, new, key, runner=runner, session=session, **options)
    differential.keep_state()
    return differential


def find_changes(
    old: Any,
    new: Any,
    key: str | Sequence[str] | None = None,
    *,
    runner: str = "auto",
    session: SparkSession | None = None,
    **options: Unpack[DiffKeywords],
) -> Differential:
    """`diff` up to the last step: the next state is not in its place before `keep_state` is called.

    So a caller can hand the changes on first: a state that moved on without them would lose them.
    """
    started = time.perf_counter()
    chosen = options_from(options)
    with ExitStack() as held:
        place, target = chosen.state or (old if is_state(old) else None), chosen.save_state or chosen.state
        replaced = place is not None and target is not None and os.path.realpath(place) == os.path.realpath(target)
        if place is not None:
            held.enter_context(state_lock(place, shared=not replaced))
        made = _compared(old, new, names_of(key), chosen, (runner, session))
        if replaced:
            made.hold_state(held.pop_all())
    made.run = replace(made.run, seconds=time.perf_counter() - started)
    return made


def _compared(
    old: Any, new: Any, key: Sequence[str], options: DiffOptions, running: tuple[str, SparkSession | None]
) -> Differential:
    old, chosen = _old_or_state(old, options)
    plan = plan_diff(old, new, key, chosen, running)
    state = plan.state
    renames = _renames(plan, chosen, state)
    estimate, estimates = choose_algorithm(plan, chosen, state)
    logger.info("comparing by %s (%s), %s", estimate.algorithm, estimate.why, plan.runner.name)
    with _naming_keys_made_one(plan):
        result = run_algorithm(plan, chosen, state, estimate.algorithm)
    result, missed = _verified(plan, chosen, result, estimate.algorithm)
    result, estimate = _with_equal_ranges(plan, result, estimate)
    if old is not None:
        guard(result.header.counts, chosen.fail_over, plan)
    run = _run(plan, result, estimate, estimates)
    logger.info("%s rows changed; %s bytes read", result.header.counts.rows, result.work.bytes_read)
    if note := note_of_one_source(old, new, chosen):
        run = replace(run, warnings=(note, *run.warnings))
    header = replace(result.header, source=plan.old.relation.name, target=plan.new.relation.name)
    if plan.drift is not None:
        given = filled_header(plan.drift, dict.fromkeys((*plan.drift.added, *plan.drift.retyped)))
        header = replace(header, old_schema=given.old_schema, fill=given.fill)
    return Differential(
        StoredChanges(header, result.parts),
        plan.spool,
        replace(run, missed=missed, renames=renames),
        _next_state(plan, chosen, result, estimate.algorithm),
        result.kept,
    )


@contextmanager
def _naming_keys_made_one(plan: DiffPlan) -> Iterator[None]:
    """A key that a side holds twice may be two that folding made one: the error names these."""
    try:
        yield
    except KeysError:
        for side, given, relation in zip(("old", "new"), (plan.old, plan.new), plan.unfolded or (), strict=False):
            names = given.file_names()
            rules = {names[name]: rule for name, rule in plan.comparison.folding.items()}
            refusal = keys_made_one(side, relation, [names[name] for name in plan.comparison.key], rules)
            if refusal is not None:
                raise refusal from None
        raise


def _with_equal_ranges(
    plan: DiffPlan, result: DiffResult, estimate: cost.CostEstimate
) -> tuple[DiffResult, cost.CostEstimate]:
    """The result with the rows that checksums inside the databases found equal, and the reason that tells of them."""
    if plan.equal is None:
        return result, estimate
    counts = result.header.counts
    counts = replace(counts, unchanged=(counts.unchanged or 0) + plan.equal.rows)
    notes = {"rows found equal inside the databases": plan.equal.rows}
    work = replace(result.work, notes={**result.work.notes, **notes})
    why = (
        f"checksums of {plan.equal.ranges:,} key ranges, computed inside the databases, left {plan.equal.unequal:,} "
        f"small ranges to read; {estimate.why}"
    )
    return replace(result, header=replace(result.header, counts=counts), work=work), replace(estimate, why=why)


def window_raw(old: Any, new: Any, key: str | Sequence[str], **options: Unpack[DiffKeywords]) -> WindowMessages:
    """The window algorithm's own messages (section 4), in its order, useless delete-insert pairs included."""
    chosen = options_from(options)
    doing = "sliding a window"
    if chosen.duplicates != "error":
        raise InputError(
            f"messages are of one row of each key, so duplicates={chosen.duplicates!r} can't be told by them",
            doing=doing,
            hint="Choose a key that is unique, or compare without raw messages (--raw)",
        )
    plan = plan_diff(old, new, names_of(key), chosen, ("inline", None))
    if not plan.comparison.key:
        raise KeysError("the window algorithm needs a key", doing=doing, hint="Give one with key=")
    if chosen.strict_schema:
        check_strict(plan.comparison.header)
    return window_messages(plan, chosen.window)


def _old_or_state(old: Any, options: DiffOptions) -> tuple[Any, DiffOptions]:
    """The old side, which may be a state: given as a path, or by `state`, which is also where the next one goes."""
    if options.state is not None:
        if old is not None and not has_state(options.state):
            return old, replace(options, save_state=options.save_state or options.state)
        if old is not None:
            raise InputError(
                "both an old side and a state are given",
                doing="comparing with saved signatures",
                hint="The state stands for the old side: leave the old side out",
            )
        saved = _renamed_state(options.state, options) if has_state(options.state) else None
        return saved, replace(options, save_state=options.save_state or options.state)
    if is_state(old):
        return _renamed_state(old, options), options
    return old, options


def _renamed_state(path: str | os.PathLike[str], options: DiffOptions) -> SignatureState:
    saved = load_state(path)
    check_renames(saved.schema, options.rename)
    return saved.renamed(options.rename)


def run_algorithm(plan: DiffPlan, options: DiffOptions, state: SignatureState | None, algorithm: str) -> DiffResult:
    """The result of one algorithm, with signatures of the new side where they are wanted."""
    if algorithm in ("kb", "kbp"):
        return _by_signatures(plan, options, state, algorithm)
    if algorithm == "merge":
        result = merge(plan, keep_sorted=options.keep_sorted)
    elif algorithm == "hash":
        result = partitioned_hash(plan)
    else:
        result = window_diff(plan, options.window, options.slices)
    if options.save_state is None:
        return result
    next_state, _ = sign_relation(plan, "new", _signature_spec(plan, options, algorithm))
    return replace(result, state=next_state)


def _by_signatures(plan: DiffPlan, options: DiffOptions, state: SignatureState | None, algorithm: str) -> DiffResult:
    spec = _signature_spec(plan, options, algorithm, state)
    if state is not None:
        _check_not_retyped(plan, state)
        state.check_fits(spec, plan.new.side.where)
        if algorithm == "kb":
            return signature_diff(plan, state, spec, keep=options.save_state is not None)
        return pointer_diff(plan, state, spec, old_at_hand=False)
    _check_same_kinds(plan, spec)
    made, signed = sign_relation(plan, "old", spec)
    before = WorkDone(bytes_read=plan.old.bytes, items=len(signed))
    result = (
        signature_diff(plan, made, spec, keep=options.save_state is not None)
        if algorithm == "kb"
        else pointer_diff(plan, made, spec, old_at_hand=True)
    )
    return replace(result, work=result.work + before)


def _signature_spec(
    plan: DiffPlan, options: DiffOptions, algorithm: str, state: SignatureState | None = None
) -> SignatureSpec:
    """How signatures are made: as asked for, and otherwise as those that were saved."""
    header = plan.comparison.header
    if not plan.comparison.key:
        raise KeysError("signatures need a key", doing="making signatures", hint="Give one with key= (--key)")
    saved = state.spec if state else None
    rows = plan.new.relation.rows or 10**6
    bits = options.bits or (bits_for(rows, options.miss_probability) if options.miss_probability else None)
    comparators = {**plan.comparison.comparators, **plan.comparison.folding}
    rules = [(name, str(rule)) for name, rule in comparators.items()]
    return SignatureSpec(
        key=plan.comparison.key,
        key_schema=pa.schema([plain_schema(plan.comparison.new_schema).field(name) for name in header.key]),
        scheme=scheme_of(
            header.after_schema,
            _signed_columns(header.values, saved),
            seed=saved.scheme.seed if saved else options.seed,
            bits=bits or (saved.scheme.bits if saved else 64),
            normalisation=rules,
        ),
        column_signatures=options.column_signatures or bool(saved and saved.column_signatures),
        pointers=algorithm == "kbp",
    )


def _check_not_retyped(plan: DiffPlan, state: SignatureState) -> None:
    """Refuses a column that was signed in a type that can't be compared with what it has become."""
    old, new = state.schema, plan.new.relation.schema
    retyped = [name for name in plan.comparison.header.retyped if name in state.spec.scheme.columns]
    if retyped:
        changes = (
            f"column {name} was saved as {old.field(name).type} and is {new.field(name).type}" for name in retyped
        )
        raise StateError(
            f"the saved signatures don't fit: {'; '.join(changes)}",
            doing=f"comparing with {state.path or 'saved signatures'}",
            hint="Give the column its old type (--types), leave it out of a new state, or save one from this extract "
            "with --save-state",
        )


def _check_same_kinds(plan: DiffPlan, spec: SignatureSpec) -> None:
    """Refuses to sign two sides whose columns can be compared, but not by signatures: 1 and 1.0 have two of them."""
    old = plan.comparison.old_schema
    before = replace(
        spec,
        key_schema=pa.schema([old.field(name) for name in spec.key]),
        scheme=replace(spec.scheme, kinds=tuple(kind_of(old.field(name).type) for name in spec.scheme.columns)),
    )
    differences = [*before.key_differences(spec), *before.scheme.differences(spec.scheme)]
    if differences:
        raise SchemaError(
            f"signatures can't compare these sides: {'; '.join(differences)}",
            doing="making signatures",
            hint="Compare whole rows: leave the algorithm out, or say merge or hash",
        )


def _signed_columns(values: Sequence[str], saved: SignatureSpec | None) -> Sequence[str]:
    """The columns to sign, in the saved order if they are the same ones."""
    return saved.scheme.columns if saved and set(saved.scheme.columns) == set(values) else values


def _verified(
    plan: DiffPlan, options: DiffOptions, result: DiffResult, algorithm: str
) -> tuple[DiffResult, int | None]:
    """A result by signatures, re-checked exactly if asked: how many updates it missed, and the exact result then."""
    if not options.verify:
        return result, None
    if algorithm not in ("kb", "kbp"):
        return result, 0
    exact_plan = plan
    if isinstance(options.verify, str):
        given = replace(options, state=None, save_state=None, verify=False, algorithm="auto")
        exact_plan = plan_diff(options.verify, plan.new.relation, plan.comparison.key, given, ("auto", None))
        exact_plan = replace(exact_plan, runner=plan.runner, spool=plan.spool)
    elif not plan.old.relation.rows and plan.old.relation.rows == 0:
        raise InputError(
            "only signatures of the old side are at hand",
            doing="verifying a differential",
            hint="Name the old extract: verify='monday.parquet' (--verify monday.parquet)",
        )
    exact = partitioned_hash(exact_plan)
    missed = exact.header.counts.rows - result.header.counts.rows
    if isinstance(options.verify, str):
        _check_same_keys(options.verify, exact.header.counts, result.header.counts)
    return (replace(exact, state=result.state) if missed else result), missed


def _check_same_keys(path: str, exact: Counts, signed: Counts) -> None:
    """Signatures miss updates alone: with other inserts or deletes, or fewer updates, it is another extract."""
    by_signatures, by_file = ((c.inserted, c.deleted) for c in (signed, exact))
    if by_signatures != by_file or exact.updated < signed.updated:
        raise StateError(
            f"{path} is not the extract that the signatures were made from: by it {by_file[0]:,} rows were inserted, "
            f"{exact.updated:,} updated, {by_file[1]:,} deleted, by them {by_signatures[0]:,}, {signed.updated:,}, "
            f"{by_signatures[1]:,}",
            doing="verifying a differential",
            hint="Name the extract of the run before, or leave verify out",
        )


def guard(counts: Counts, fail_over: float | None, plan: DiffPlan) -> None:
    """Stops a suspect reload: more rows changed than the share that was said to be believable."""
    if fail_over is None:
        return
    before = (counts.unchanged or 0) + counts.updated + counts.deleted
    share = counts.rows / max(before, 1)
    if share > fail_over:
        raise GuardTripped(
            f"suspect reload: {counts.rows:,} of {before:,} rows changed ({share:.1%}; allowed are {fail_over:.1%})",
            doing=f"comparing {plan.old.relation.name} with {plan.new.relation.name}",
            hint="Nothing was written. Look at the extract; if it is right, run again with a larger --fail-over",
        )


def _next_state(plan: DiffPlan, options: DiffOptions, result: DiffResult, algorithm: str) -> NextState | None:
    if options.save_state is None or result.state is None:
        return None
    header, state = plan.comparison.header, result.state
    if header.added or header.retyped:
        state = _signed_anew(plan, options, state, algorithm)
    schema = pa.schema(list(plan.new.relation.schema))
    return NextState(replace(state, schema=schema), options.save_state)


def _signed_anew(plan: DiffPlan, options: DiffOptions, state: SignatureState, algorithm: str) -> SignatureState:
    """Signatures of all columns of the new side: those that both sides shared would be refused by the next run."""
    names = plan.new.relation.schema.names
    options = spelled_options(options, names) if options.any_case else options
    given = replace(
        options,
        columns=tuple(name for name in options.columns if name in names),
        ignore=tuple(name for name in options.ignore if name in names),
        rename={},
    )
    alone = plan_diff(None, plan.new.relation, plan.comparison.key, given, ("inline", None))
    alone = replace(alone, runner=plan.runner, spool=plan.spool)
    return sign_relation(alone, "new", _signature_spec(alone, options, algorithm, state))[0]


def _renames(plan: DiffPlan, options: DiffOptions, state: SignatureState | None) -> tuple[tuple[str, str], ...]:
    header = plan.comparison.header
    if options.strict_schema:
        check_strict(plan.drift or header)
    if state is None and header.added and header.removed and plan.old.relation.rows != 0:
        return suggest_renames(plan)
    return ()


def _run(
    plan: DiffPlan,
    result: DiffResult,
    estimate: cost.CostEstimate,
    estimates: tuple[cost.CostEstimate, ...],
) -> DiffRun:
    miss, runs = None, None
    if estimate.algorithm in ("kb", "kbp") and result.state is not None:
        compared = (result.header.counts.unchanged or 0) + result.header.counts.updated
        error = error_of_one_comparison(result.state.spec.scheme.bits)
        miss, runs = miss_probability(compared, error), expected_runs_to_first_miss(compared, error)
    warnings = []
    if not result.header.has_before and result.header.form == "keyed" and result.header.values:
        warnings.append("no before images: the old side was signatures alone, so the changes can't be inverted")
    if result.header.inexact:
        warnings.append("compared with tolerances: the change set is inexact")
    return DiffRun(
        algorithm=estimate.algorithm,
        why=estimate.why,
        runner=plan.runner.name,
        seconds=0.0,
        work=result.work,
        estimates=estimates,
        miss_probability=miss,
        runs_to_first_miss=runs,
        warnings=tuple(warnings),
    )

"""The choice of an algorithm in words: what each would cost, which was taken, what was really done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.detect.diff import Run


def explain(run: Run) -> str:
    """A small table of estimates, the reason, and the run's own figures beside them."""
    lines = [f"{'':2}{'algorithm':10}{'reads':>12}{'shuffles':>12}{'writes':>12}   why"]
    for estimate in run.estimates:
        taken = "*" if estimate.algorithm == run.algorithm else " "
        sizes = [mebibytes(size) for size in (estimate.bytes_read, estimate.bytes_shuffled, estimate.bytes_written)]
        figures = "".join(f"{size if estimate.possible else '–':>12}" for size in sizes)
        lines.append(f"{taken} {estimate.algorithm:10}{figures}   {estimate.why}")
    work = run.work
    done = [mebibytes(size) for size in (work.bytes_read, work.bytes_shuffled, work.bytes_written)]
    lines.append(
        f"= {'really':10}{done[0]:>12}{done[1]:>12}{done[2]:>12}   {work.rows_read:,} rows, {run.seconds:.2f} s"
    )
    lines.append(
        f"Taken: {run.algorithm}, because {run.why}. Ran on the {run.runner} runner in {work.items} work items."
    )
    lines += [
        f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value:,}"
        for name, value in work.notes.items()
    ]
    if run.miss_probability is not None:
        runs = f"{run.runs_to_first_miss:.3g}" if run.runs_to_first_miss else "?"
        lines.append(
            f"Probability of a missed update in this run: {run.miss_probability:.2g}; "
            f"expected runs to the first miss: {runs}."
        )
    return "\n".join(lines)


def mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"

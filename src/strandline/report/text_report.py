"""The summary in words and small tables, for the person at the terminal.

`summary_words` is one paragraph of plain text. `summary_view` adds tables and examples and is drawn by rich, which
colours only terminals. Values pass through `Text`, never through markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.changes import COUNTED, DELETE, INSERT, UPDATE, Header
from strandline.engine import byte_count
from strandline.errors import shortened
from strandline.report.examples import Cell, Example, one_line, shortened_pair
from strandline.report.run_facts import RunFacts, describe_drift, format_probability, format_seconds, schema_drift

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

SIGNS = {INSERT: "+", UPDATE: "~", DELETE: "−"}
STYLES = {INSERT: "green", UPDATE: "yellow", DELETE: "red"}
COLUMNS_SHOWN = 12
CELL_WIDTH = 48


def summary_words(header: Header, facts: RunFacts | None = None, *, renames: Mapping[str, str] | None = None) -> str:
    """One paragraph: what changed, in which columns, how the schema drifted, how it was found out, how surely.

    Why that algorithm was taken is told where one asks: `--explain`, `Differential.explain`, the page.
    """
    between = f"From {header.source} to {header.target}." if header.source and header.target else ""
    sentences = [between, what_changed(header), *describe_drift(schema_drift(header, renames))]
    sentences += _marks(header)
    if facts is not None:
        sentences += [_how(facts), _how_sure(facts), *(_sentence(f"Warning: {words}") for words in facts.warnings)]
    return one_line(" ".join(sentence for sentence in sentences if sentence))


def summary_view(
    header: Header,
    facts: RunFacts | None = None,
    *,
    examples: Sequence[Example] = (),
    renames: Mapping[str, str] | None = None,
) -> Group:
    """The paragraph, the counts, the columns that changed most, and examples; for a rich console to draw."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [Text(summary_words(header, facts, renames=renames)), Text(), _counts(header)]
    columns = _columns(header)
    if columns is not None:
        parts += [Text(), columns]
    for example in examples:
        parts += [Text(), _drawn(example)]
    return Group(*parts)


def what_changed(header: Header) -> str:
    """The sentences about rows and columns."""
    return " ".join(sentence for sentence in (_which_rows(header), _which_columns(header)) if sentence)


def _which_rows(header: Header) -> str:
    counts = header.counts
    if not counts.rows:
        same = "" if counts.unchanged is None else f"; {_rows(counts.unchanged)} the same"
        return f"No row changed{same}."
    names = ("added", "removed") if header.form == COUNTED else ("inserted", "deleted")
    parts = [(counts.inserted, names[0]), (counts.updated, "updated"), (counts.deleted, names[1])]
    listed = ", ".join(f"{count:,} {name}" for count, name in parts if count)
    same = "" if counts.unchanged is None else f"; {counts.unchanged:,} unchanged{_share(header)}"
    return f"{_rows(counts.rows)} changed: {listed}{same}."


def _share(header: Header) -> str:
    """How much of the old side was updated or deleted, where that is known."""
    counts = header.counts
    before = (counts.unchanged or 0) + counts.updated + counts.deleted
    if not before:
        return ""
    share = 100 * (counts.updated + counts.deleted) / before
    return f" ({share:.3g} % of the old rows changed or went)" if share >= 0.001 else ""


def _which_columns(header: Header) -> str:
    counts = _ranked(header)
    if not counts or not header.counts.updated:
        return ""
    most = ", ".join(f"{name} ({count:,})" for name, count in counts[:3])
    if len(counts) == 1:
        return f"Updates touched 1 of {len(header.values)} columns: {most}."
    rest = "most often " if len(counts) > 3 else ""
    return f"Updates touched {len(counts)} of {len(header.values)} columns, {rest}{most}."


def _ranked(header: Header) -> list[tuple[str, int]]:
    """The columns that updates touched, most often touched first, each name on one line."""
    counts = [(name, count) for name, count in (header.counts.columns or {}).items() if count]
    return sorted(((shortened(one_line(name), 60), count) for name, count in counts), key=lambda each: -each[1])


def _marks(header: Header) -> list[str]:
    sentences = []
    if header.form != COUNTED and not header.knows_before:
        sentences.append("Before images are not known, so this change set can't be inverted.")
    if header.inexact:
        sentences.append("Comparators that are no equivalence relation were used: the set is inexact.")
    return sentences


def _how(facts: RunFacts) -> str:
    if not facts.algorithm:
        return ""
    runner = {"": "", "inline": " in this process", "spark": " on Spark"}.get(facts.runner, f" on {facts.runner}")
    time = f" within {format_seconds(facts.seconds)}" if facts.seconds is not None else ""
    moved = [("read", facts.bytes_read), ("shuffled", facts.bytes_shuffled)]
    sizes = "".join(f", {byte_count(size)} {what}" for what, size in moved if size)
    return f"Compared with {facts.algorithm}{runner}{time}{sizes}."


def _how_sure(facts: RunFacts) -> str:
    if not facts.miss_probability:
        return ""
    runs = ""
    if facts.runs_to_first_miss is not None and facts.runs_to_first_miss != float("inf"):
        runs = f", one miss in {facts.runs_to_first_miss:,.3g} runs"
    return f"The chance that an update was missed is {format_probability(facts.miss_probability)}{runs}."


def _counts(header: Header) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column()
    counted = header.form == COUNTED
    lines = [
        (INSERT, header.counts.inserted, "rows added" if counted else "inserted"),
        (UPDATE, header.counts.updated, "updated"),
        (DELETE, header.counts.deleted, "rows removed" if counted else "deleted"),
    ]
    for kind, count, name in lines:
        if counted and kind == UPDATE:
            continue
        style = STYLES[kind] if count else "dim"
        table.add_row(Text(f"{count:,}", style=style), Text(f"{SIGNS[kind]} {name}", style=style))
    unchanged = "?" if header.counts.unchanged is None else f"{header.counts.unchanged:,}"
    table.add_row(Text(unchanged, style="dim"), Text("= unchanged", style="dim"))
    return table


def _columns(header: Header) -> Table | None:
    """How often updates touched each column, as numbers and bars; the rest of a wide table in one line."""
    from rich.table import Table
    from rich.text import Text

    ranked = _ranked(header)
    if not ranked:
        return None
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="ellipsis", max_width=32, no_wrap=True)
    table.add_column(justify="right")
    table.add_column()
    for name, count in ranked[:COLUMNS_SHOWN]:
        table.add_row(Text(name), Text(f"{count:,}"), Text(_bar(count / ranked[0][1]), style=STYLES[UPDATE]))
    rest = ranked[COLUMNS_SHOWN:]
    if rest:
        table.add_row(Text(f"and {len(rest)} more columns", style="dim"), Text(""), Text(""))
    return table


def _bar(share: float, width: int = 24) -> str:
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + ("" if eighths % 8 == 0 else " ▏▎▍▌▋▊▉"[eighths % 8])


def _drawn(example: Example) -> Text:
    """An example: an update with a line for each cell, an insert or a delete with its cells in one paragraph."""
    from rich.text import Text

    copies = "" if example.count is None else f"{example.count:,} × "
    drawn = Text(f"{SIGNS[example.kind]} {copies}", style=f"bold {STYLES[example.kind]}")
    for place, (name, value) in enumerate(example.key):
        drawn.append(f"{', ' if place else ''}{one_line(name)}=").append(_value(value, "bold"))
    cells = [_cell(cell, example) for cell in example.cells]
    if example.hidden:
        cells.append(Text(f"and {example.hidden} more", style="dim not bold"))
    for place, cell in enumerate(cells):
        drawn.append("\n    " if example.kind == UPDATE else "  " if place == 0 else " · ", style="dim not bold")
        drawn.append(cell)
    return drawn


def _cell(cell: Cell, example: Example) -> Text:
    from rich.text import Text

    line = Text(f"{shortened(one_line(cell.path), 40)}: ", style="not bold default")
    before, after = _one_line(cell.before), _one_line(cell.after)
    if example.kind != UPDATE or not example.knows_before:
        return line.append(_value(before if example.kind == DELETE else after, STYLES[example.kind]))
    if before is not None and after is not None:
        before, after = shortened_pair(before, after, CELL_WIDTH)
    line.append(_value(before, STYLES[DELETE]))
    line.append(" → ", style="dim not bold")
    return line.append(_value(after, STYLES[INSERT]))


def _one_line(value: str | None) -> str | None:
    return None if value is None else one_line(value)


def _value(text: str | None, style: str) -> Text:
    from rich.text import Text

    if text is None:
        return Text("null", style="dim italic not bold")
    return Text(shortened(text, CELL_WIDTH) if text else "''", style=f"not bold {style}")


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."

"""The report as Markdown, for a comment on a pull request or a page of a wiki: counts, columns, schema, examples.

Every value stands in a code span, where neither HTML nor a link nor a mention means anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from strandline.changes import COUNTED, DELETE, INSERT, UPDATE, ChangeSet, Header
from strandline.errors import shortened
from strandline.report.column_changes import ColumnChange, column_changes
from strandline.report.examples import Cell, Example, one_line, pick_examples, shortened_pair
from strandline.report.run_facts import RunFacts, describe_drift, describe_facts, schema_drift
from strandline.report.text_report import what_changed

EXAMPLES, CELLS, WIDTH = 5, 14, 80
_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~@#&!])")


def markdown_report(
    changes: ChangeSet,
    facts: RunFacts | None = None,
    *,
    renames: Mapping[str, str] | None = None,
    limit: int = EXAMPLES,
) -> str:
    """The whole report; `limit` is how many examples of each kind it has."""
    header = changes.header
    title = f"{header.source} → {header.target}" if header.source and header.target else "What changed"
    parts = [
        f"### {prose(title)}",
        prose(what_changed(header)),
        _counts(header),
        _columns(header, column_changes(changes, 1)),
        "\n".join(f"- {prose(words)}" for words in describe_drift(schema_drift(header, renames))),
        "\n".join(f"> **Warning**: {prose(words)}" for words in (facts.warnings if facts else ())),
        _examples(pick_examples(changes, limit, CELLS), header) if limit else "",
        _facts(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def code(value: str, width: int = WIDTH) -> str:
    """A value as a code span inside a table: on one line, with a fence longer than any run of backticks inside."""
    text = shortened(one_line(value), width).replace("|", "\\|")
    if not text.strip():
        return f"`{text or chr(39) * 2}`"
    fence = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    space = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{space}{text}{space}{fence}"


def prose(words: str) -> str:
    """A sentence that may hold names: everything that Markdown would take for markup is escaped."""
    return _SPECIAL.sub(r"\\\1", one_line(words))


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already; columns of numbers stand to the right."""
    rule = ["---:" if place in right else "---" for place in range(len(names))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


def _counts(header: Header) -> str:
    counts, counted = header.counts, header.form == COUNTED
    kinds = [
        ("added" if counted else "inserted", counts.inserted),
        ("removed" if counted else "deleted", counts.deleted),
    ]
    if not counted:
        kinds.insert(1, ("updated", counts.updated))
    cells = [f"{count:,}" for _, count in kinds] + ["?" if counts.unchanged is None else f"{counts.unchanged:,}"]
    return markdown_table([*(name for name, _ in kinds), "unchanged"], [cells], range(len(cells)))


def _columns(header: Header, transitions: Sequence[ColumnChange]) -> str:
    counts = [(name, count) for name, count in (header.counts.columns or {}).items() if count]
    if not counts or not header.counts.updated:
        return ""
    ranked = sorted(counts, key=lambda each: -each[1])
    commonest = {one.name: _commonest(one) for one in transitions}
    rows = [(code(name), f"{count:,}", commonest.get(name, "")) for name, count in ranked]
    return markdown_table(["column", f"of {header.counts.updated:,} updates", "most often"], rows, [1])


def _commonest(one: ColumnChange) -> str:
    most = one.transitions[0]
    before, after = (("*null*" if side is None else code(side, 30)) for side in (most.before, most.after))
    return f"{before} → {after} ({most.count:,} ×)"


def _examples(examples: Sequence[Example], header: Header) -> str:
    if not examples:
        return ""
    rows: list[Sequence[str]] = []
    for example in examples:
        copies = "" if example.count is None else f"{example.count:,} × "
        key = ", ".join(_value(value) for _, value in example.key)
        cells = [_cells(cell, example) for cell in example.cells] or [("", "", "")]
        if example.hidden:
            cells.append((f"and {example.hidden} more", "", ""))
        for place, cell in enumerate(cells):
            rows.append([copies + example.kind, key, *cell] if place == 0 else ["", "", *cell])
    key = ", ".join(code(name) for name in header.key) or "row"
    table = markdown_table(["change", key, "column", "before", "after"], rows)
    return f"<details><summary>Examples</summary>\n\n{table}\n\n</details>"


def _cells(cell: Cell, example: Example) -> tuple[str, str, str]:
    before, after = cell.before, cell.after
    if before is not None and after is not None:
        before, after = shortened_pair(one_line(before), one_line(after), WIDTH)
    known_before = example.kind == DELETE or (example.kind == UPDATE and example.knows_before)
    known_after = example.kind in (INSERT, UPDATE)
    return (code(cell.path), _value(before) if known_before else "", _value(after) if known_after else "")


def _value(text: str | None) -> str:
    return "*null*" if text is None else code(text)


def _facts(facts: RunFacts | None) -> str:
    described = describe_facts(facts) if facts is not None else []
    return " · ".join(f"{prose(name)}: {prose(value)}" for name, value in described)

"""The report as one HTML file that opens from disk: style and pictures inside, no scripts, no network."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from strandline.changes.shape import COUNTED, ChangeSet, Header
from strandline.report.drift import schema_drift
from strandline.report.examples import examples
from strandline.report.facts import RunFacts
from strandline.report.html_parts import (
    columns_part,
    drift_part,
    examples_part,
    facts_part,
    safe,
    tiles,
    warnings_part,
    where_part,
)
from strandline.report.html_style import STYLE
from strandline.report.pictures import MARK
from strandline.report.positions import Positions
from strandline.report.words import what_changed

EXAMPLES, CELLS = 5, 14
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_report(
    header: Header,
    rows_sample: pa.Table,
    facts: RunFacts | None = None,
    *,
    where: Positions | None = None,
    renames: Mapping[str, str] | None = None,
) -> str:
    """One self-contained HTML page: counts, where changes lie, columns, schema drift, examples, facts of the run.

    `rows_sample` are rows of the change set from which examples are drawn; counts come from the header. Whatever the
    values hold, they are text on the page.
    """
    title = f"{header.source} → {header.target}" if header.source and header.target else "What changed"
    drift = schema_drift(header, renames)
    parts = [
        f'<div class="mark">{MARK}<span>Strandline</span></div>',
        f'<h1 class="ends">{safe(title)}</h1>',
        f'<p class="lead soft">{safe(what_changed(header))}</p>',
        warnings_part([*(facts.warnings if facts else ()), *_cautions(header)]),
        tiles(header),
        where_part(where, header),
        columns_part(header),
        drift_part(drift),
        examples_part(examples(ChangeSet(header, rows_sample), EXAMPLES, CELLS), header),
        facts_part(facts),
        _footer(header),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)} · Strandline</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(part for part in parts if part)}\n</main>\n</body>\n</html>\n"
    )


def _cautions(header: Header) -> list[str]:
    """What a reader must know before trusting the counts."""
    told = []
    if header.partial:
        columns = ", ".join((*header.added, *header.removed, *header.retyped))
        told.append(f"The schema changed, and these columns were not compared: {columns}.")
    if header.inexact:
        told.append("Comparators with a tolerance were used: chains of small changes may go unseen.")
    return told


def _footer(header: Header) -> str:
    key = f"Rows matched by {', '.join(header.key)}." if header.key else "Rows had no key and were counted."
    images = "" if header.form == COUNTED or header.knows_before else " Before images are not known."
    return f"<footer>{safe(key)}{images} This page holds everything it shows and loads nothing.</footer>"

"""The report as one HTML file that opens from disk, style and pictures inside, no scripts, no network; and what a
notebook shows of an object: a caption and a few rows, small enough to stand below a cell.

Each part is a function from facts to markup. Every value passes through `safe`: whatever it holds, it is text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import pyarrow as pa

from strandline.changes import COUNTED, DELETE, INSERT, UPDATE, Changes, ChangeSet, Header
from strandline.differential import Differential
from strandline.errors import shortened
from strandline.relations import Relation, relation_batches
from strandline.report.column_changes import ColumnChange, column_changes
from strandline.report.examples import Cell, Example, by_kind, one_line, pick_examples, shortened_pair
from strandline.report.html_style import STYLE
from strandline.report.positions import MARK, KeyPositions, positions_by_key, strip
from strandline.report.run_facts import RunFacts, SchemaDrift, describe_facts, facts_of, schema_drift
from strandline.report.text_report import what_changed
from strandline.report.values import python_values, text
from strandline.values import no_rows

VALUE_WIDTH, FLOW_WIDTH = 220, 90
_LONG = 16  # shorter values are taken in at a glance: marking inside them is noise
_WORDS = re.compile(r"\w+|\W")
COLUMNS_SHOWN = 16
_PAST = {INSERT: "inserted", UPDATE: "updated", DELETE: "deleted"}
_HEADINGS = {UPDATE: "Updated rows", INSERT: "Inserted rows", DELETE: "Deleted rows"}


def safe(value: str) -> str:
    """Any text as markup: escaped, on one line, with control characters spelled out."""
    return html.escape(one_line(value), quote=True)


def tiles(header: Header) -> str:
    """The headline counts, and under them their shares of all rows."""
    counts, counted = header.counts, header.form == COUNTED
    kinds = [
        (INSERT, counts.inserted, "+ added" if counted else "+ inserted"),
        (UPDATE, counts.updated, "~ updated"),
        (DELETE, counts.deleted, "− removed" if counted else "− deleted"),
        ("same", counts.unchanged, "= unchanged"),
    ]
    shown = [each for each in kinds if not (counted and each[0] == UPDATE)]
    cards = [_tile(kind, count, name) for kind, count, name in shown]
    total = sum(count or 0 for _, count, _ in shown)
    shares = [
        f'<i class="{kind}" style="flex: {count} 1 0"></i>' for kind, count, _ in shown if count and total > count
    ]
    bar = f'<div class="shares" aria-hidden="true">{"".join(shares)}</div>' if shares else ""
    return f'<div class="tiles">{"".join(cards)}</div>{bar}'


def _tile(kind: str, count: int | None, name: str) -> str:
    zero = " zero" if count == 0 else ""
    number, note = ("–", " (not counted)") if count is None else (f"{count:,}", "")
    return f'<div class="tile card {kind}{zero}"><b>{number}</b><span>{name}{note}</span></div>'


def where_part(where: KeyPositions | None, header: Header) -> str:
    """The picture of what changed where; nothing without positions."""
    if where is None or not where.highest:
        return ""
    kinds = {INSERT: where.inserted, UPDATE: where.updated, DELETE: where.deleted}
    legend = "".join(f'<span class="{kind}">{_PAST[kind]}</span>' for kind, counts in kinds.items() if any(counts))
    along = f"along {safe(', '.join(header.key))}" if header.key else "along the rows"
    first, last = (safe(shortened(end, 60)) for end in (where.first or "first", where.last or "last"))
    return (
        f"<h2>Where <small>{along}, in {len(where.inserted)} steps; the highest holds {where.highest:,}, "
        "and heights grow with the square root</small></h2>"
        f"<figure class='strip card'><div class='legend'>{legend}</div>"
        f"{strip(where)}<div class='axis'><span>{first}</span><span>{last}</span></div></figure>"
    )


def columns_part(header: Header) -> str:
    """A bar for each column that updates touched; nothing where it is not known or nothing was updated."""
    counts = header.counts.columns
    if not counts or not header.counts.updated:
        return ""
    ranked = sorted(((name, count) for name, count in counts.items() if count), key=lambda each: -each[1])
    quiet = len(counts) - len(ranked)
    note = (
        f"<p class='note'>{quiet} {'column' if quiet == 1 else 'columns'} stayed the same in every update.</p>"
        if quiet
        else ""
    )
    rest = ranked[COLUMNS_SHOWN:]
    more = f"<details><summary>{len(rest)} more columns</summary>{_bars(rest, header)}</details>" if rest else ""
    updated = header.counts.updated
    share = f"of {updated:,} {'update' if updated == 1 else 'updates'}"
    return f"<h2>Columns <small>{share}</small></h2>{_bars(ranked[:COLUMNS_SHOWN], header)}{more}{note}"


def transitions_part(transitions: Sequence[ColumnChange]) -> str:
    """For each column that updates touched what became of its values, folded up."""
    if not transitions:
        return ""
    return f"<h2>What became of values</h2>{''.join(_column_changes(one) for one in transitions)}"


def _column_changes(one: ColumnChange) -> str:
    facts = [f"{one.updates:,} {'update' if one.updates == 1 else 'updates'}"]
    facts += [f"{one.gained_nulls:,} became null"] if one.gained_nulls else []
    facts += [f"{one.lost_nulls:,} were null"] if one.lost_nulls else []
    if one.mean_shift is not None:
        ends = f" (from {one.least_shift:+.4g} to {one.greatest_shift:+.4g})" if one.updates > 1 else ""
        facts.append(f"moved by {one.mean_shift:+.4g} on average{ends}")
    rows = "".join(
        f"<tr><td>{_whole(each.before, 'del', FLOW_WIDTH)}</td><td>{_whole(each.after, 'ins', FLOW_WIDTH)}</td>"
        f"<td>{each.count:,} ×</td><td class='soft'>e.g. {safe(shortened(each.key, FLOW_WIDTH))}</td></tr>"
        for each in one.transitions
    )
    left = one.kinds - len(one.transitions)
    more = f"<p class='note'>and {left:,} other {'pair' if left == 1 else 'pairs'} of values</p>" if left else ""
    return (
        f"<details><summary><code>{safe(one.name)}</code> <span class='soft'>{' · '.join(facts)}</span></summary>"
        f"<div class='card'><table class='plain'>{rows}</table></div>{more}</details>"
    )


def _bars(ranked: Sequence[tuple[str, int]], header: Header) -> str:
    rows = [
        f'<div class="bar"><span class="name">{safe(name)}</span><span class="track">'
        f'<i style="width:{100 * count / header.counts.updated:.2f}%"></i></span>'
        f'<span class="count">{count:,}</span></div>'
        for name, count in ranked
    ]
    return f'<div class="bars">{"".join(rows)}</div>'


def drift_part(drift: SchemaDrift) -> str:
    """The columns that were added, removed or retyped, and what may be renames."""
    rows = [("added", name, f"<code>{safe(type_)}</code>") for name, type_ in drift.added]
    rows += [("removed", name, f"<code>{safe(type_)}</code>") for name, type_ in drift.removed]
    for each in drift.retyped:
        verdict = "" if each.compared else " <span class='soft'>not compared</span>"
        rows.append(
            ("retyped", each.name, f"<code>{safe(each.before)}</code> → <code>{safe(each.after)}</code>{verdict}")
        )
    rows += [("perhaps renamed", old, f"→ <code>{safe(new)}</code>") for old, new in drift.renames]
    if not rows:
        return ""
    lines = [f"<tr><td>{what}</td><td><code>{safe(name)}</code></td><td>{how}</td></tr>" for what, name, how in rows]
    return f"<h2>Schema</h2><div class='card'><table class='plain'>{''.join(lines)}</table></div>"


def examples_part(examples: Sequence[Example], header: Header) -> str:
    """A few changes of each kind, with the cells that differ."""
    totals = {UPDATE: header.counts.updated, INSERT: header.counts.inserted, DELETE: header.counts.deleted}
    parts = []
    for kind, chosen in by_kind(examples).items():
        heading = {INSERT: "Added rows", DELETE: "Removed rows"}[kind] if header.form == COUNTED else _HEADINGS[kind]
        shown = sum(each.count or 1 for each in chosen)
        some = f"{shown:,} of {totals[kind]:,}" if totals[kind] > shown else "all"
        cards = "".join(_example(each) for each in chosen)
        parts.append(f"<h2>{heading} <small>{some}</small></h2>{cards}")
    return "".join(parts)


def _example(example: Example) -> str:
    key = " ".join(f'<span class="k">{safe(n)}</span> {_whole(v, "span")}' for n, v in example.key)
    if example.count is not None:
        key = f"{example.count:,} ×"
    more = f'<div class="more">and {example.hidden} more</div>' if example.hidden else ""
    if example.kind == UPDATE:
        rows = "".join(_changed_cell(cell, knows_before=example.knows_before) for cell in example.cells)
        body = f"<table>{rows}</table>" if rows else ""
    else:
        tag = "del" if example.kind == DELETE else "ins"
        values = [(cell.path, cell.before if tag == "del" else cell.after) for cell in example.cells]
        pairs = "".join(f"<span><b>{safe(path)}</b> {_whole(value, tag, FLOW_WIDTH)}</span>" for path, value in values)
        body = f'<div class="flow">{pairs}</div>' if pairs else ""
    return f'<article class="example card {example.kind}"><h3>{key}</h3>{body}{more}</article>'


def _changed_cell(cell: Cell, *, knows_before: bool) -> str:
    if not knows_before:
        return f"<tr><th>{safe(cell.path)}</th><td>{_whole(cell.after, 'ins')}</td></tr>"
    if cell.before is None or cell.after is None or not (cell.before and cell.after):
        before, after = _whole(cell.before, "del"), _whole(cell.after, "ins")
    else:
        before, after = _marked(one_line(cell.before), one_line(cell.after))
    return f"<tr><th>{safe(cell.path)}</th><td>{before}</td><td>{after}</td></tr>"


def _whole(value: str | None, tag: str, width: int = VALUE_WIDTH) -> str:
    if not value:
        return f'<{tag} class="v null">{"null" if value is None else "empty"}</{tag}>'
    return f'<{tag} class="v">{safe(shortened(value, width))}</{tag}>'


def _marked(before: str, after: str) -> tuple[str, str]:
    """Two values, with the words that differ marked where they are long and much alike."""
    before, after = shortened_pair(before, after, VALUE_WIDTH)
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if max(len(before), len(after)) < _LONG or matcher.ratio() < 0.4:
        return _whole(before, "del"), _whole(after, "ins")
    pieces: tuple[list[str], list[str]] = ([], [])
    cut = max(len(before), len(after)) == VALUE_WIDTH  # then the last difference may be where the texts were cut
    end = (len(old) - 1, len(new) - 1)
    for what, i, j, k, m in matcher.get_opcodes():
        what = "equal" if cut and (j >= end[0] and m >= end[1]) else what
        for side, words in zip(pieces, (old[i:j], new[k:m]), strict=True):
            text = safe("".join(words))
            side.append(text if what == "equal" or not text else f"<mark>{text}</mark>")
    return f'<del class="v">{"".join(pieces[0])}</del>', f'<ins class="v">{"".join(pieces[1])}</ins>'


def facts_part(facts: RunFacts | None) -> str:
    """How the result was found out: the algorithm, what it read, how sure it is."""
    described = describe_facts(facts) if facts is not None else []
    if not described:
        return ""
    pairs = "".join(f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in described)
    return f'<h2>How this was found out</h2><dl class="facts card">{pairs}</dl>'


def warnings_part(warnings: Sequence[str]) -> str:
    return "".join(f'<p class="warning">{safe(words)}</p>' for words in warnings)


EXAMPLES, CELLS = 5, 14
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_report(
    header: Header,
    rows_sample: pa.Table,
    facts: RunFacts | None = None,
    *,
    where: KeyPositions | None = None,
    renames: Mapping[str, str] | None = None,
    limit: int = EXAMPLES,
) -> str:
    """One self-contained HTML page: counts, where changes lie, columns, schema drift, examples, facts of the run.

    `rows_sample` are rows of the change set from which examples, up to `limit` of each kind, are drawn; counts come
    from the header. Whatever the values hold, they are text on the page.
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
        transitions_part(column_changes(ChangeSet(header, rows_sample), limit) if limit else []),
        drift_part(drift),
        examples_part(pick_examples(ChangeSet(header, rows_sample), limit, CELLS), header),
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
    cautions = []
    if header.partial:
        columns = ", ".join((*header.added, *header.removed, *header.retyped))
        cautions.append(f"The schema changed, and these columns were not compared: {columns}.")
    if header.inexact:
        cautions.append("Comparators with a tolerance were used: chains of small changes may go unseen.")
    return cautions


def _footer(header: Header) -> str:
    key = f"Rows matched by {', '.join(header.key)}." if header.key else "Rows had no key and were counted."
    images = "" if header.form == COUNTED or header.knows_before else " Before images are not known."
    return f"<footer>{safe(key)}{images} This page holds everything it shows and loads nothing.</footer>"


SHOWN, WIDTH = 10, 60


def rows_html(caption: str, rows: pa.Table, more: str = "") -> str:
    """A table of the first rows, with a caption above and a line below."""
    shown = rows.slice(0, SHOWN)
    columns = [python_values(column) for column in shown.columns]
    head = "".join(f"<th>{safe(name)}</th>" for name in shown.column_names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in zip(*columns, strict=True))
    below = f"<p>{safe(more)}</p>" if more else ""
    return (
        f"<div><p><b>{safe(caption)}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


def schema_html(caption: str, schema: pa.Schema) -> str:
    """The columns and their types, where rows would cost too much to show."""
    columns = {"column": schema.names, "type": [str(field.type) for field in schema]}
    shown = pa.table(columns, pa.schema([("column", pa.string()), ("type", pa.string())]))
    left = f"and {len(schema) - SHOWN} more columns" if len(schema) > SHOWN else ""
    return rows_html(caption, shown, left)


def changes_html(changes: Changes) -> str:
    """A change set as a notebook shows it: its counts and its first rows."""
    rows = next(changes.tables(), no_rows(changes.header.rows_schema))
    left = len(changes) - min(len(rows), SHOWN)
    return rows_html(repr(changes).strip("<>"), rows, f"and {left:,} more changes" if left else "")


def changes_page(changes: Changes, limit: int) -> str:
    """The whole page of a change set; of a differential, with how it was found."""
    differential = changes if isinstance(changes, Differential) else None
    renames = dict(differential.run.renames) if differential is not None else None
    whole = changes.to_set()
    facts = facts_of(differential.run, differential.header.counts) if differential is not None else None
    where = positions_by_key(whole)
    return html_report(whole.header, whole.rows, facts, where=where, renames=renames, limit=limit)


def first_rows(relation: Relation, count: int = SHOWN) -> pa.Table:
    """The first rows of a relation; no more of its parts is read than that takes."""
    batches, rows = [], 0
    for batch in relation_batches(relation):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= count:
            break
    return pa.Table.from_batches(batches, relation.schema).slice(0, count) if batches else no_rows(relation.schema)


def _cell(value: object) -> str:
    return "<td><i>null</i></td>" if value is None else f"<td>{safe(shortened(text(value), WIDTH))}</td>"

"""The summary as one JSON object, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.changes.shape import Header
from strandline.report.drift import schema_drift
from strandline.report.facts import RunFacts, facts_json


def summary_json(
    header: Header, facts: RunFacts | None = None, *, renames: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `--json` prints: counts at the top level, null where they are unknown; always valid JSON.

    `columns` has for each value column the updates in which it differs, or is null where the set does not know.
    """
    counts, drift = header.counts, schema_drift(header, renames)
    facts = facts or RunFacts()
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
        "same": counts.rows == 0 and not drift,
        "form": header.form,
        "key": list(header.key),
        "columns": None if counts.columns is None else dict(counts.columns),
        "schema": {
            "added": [{"name": name, "type": type_} for name, type_ in drift.added],
            "removed": [{"name": name, "type": type_} for name, type_ in drift.removed],
            "retyped": [
                {"name": each.name, "before": each.before, "after": each.after, "compared": each.compared}
                for each in drift.retyped
            ],
            "renames": [{"before": before, "after": after} for before, after in drift.renames],
        },
        "before_images": header.knows_before,
        "partial": header.partial,
        "inexact": header.inexact,
        "source": header.source,
        "target": header.target,
        "algorithm": facts.algorithm or None,
        "facts": facts_json(facts),
    }

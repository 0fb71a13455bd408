"""What people see of a differential: layouts, files, SQL, words, JSON and an HTML report.

Importing this loads no Spark, DuckDB or sqlglot.
"""

from strandline.report.column_by_column import column_by_column
from strandline.report.drift import Drift, Retyped, schema_drift
from strandline.report.examples import Cell, Example, examples
from strandline.report.facts import RunFacts
from strandline.report.html_report import html_report
from strandline.report.layouts import LAYOUTS, lay_out, left, right, side_by_side, sparse
from strandline.report.paths import Difference, changed_paths, differences
from strandline.report.positions import Positions, combined, positions, positions_by_key
from strandline.report.sql_merge import DIALECTS, sql_merge
from strandline.report.summary_json import summary_json
from strandline.report.words import summary_view, summary_words
from strandline.report.write_out import Out, write_out
from strandline.report.writers import FORMATS, Written, format_of, write_rows, write_text

__all__ = [
    "DIALECTS",
    "FORMATS",
    "LAYOUTS",
    "Cell",
    "Difference",
    "Drift",
    "Example",
    "Out",
    "Positions",
    "Retyped",
    "RunFacts",
    "Written",
    "changed_paths",
    "column_by_column",
    "combined",
    "differences",
    "examples",
    "format_of",
    "html_report",
    "lay_out",
    "left",
    "positions",
    "positions_by_key",
    "right",
    "schema_drift",
    "side_by_side",
    "sparse",
    "sql_merge",
    "summary_json",
    "summary_view",
    "summary_words",
    "write_out",
    "write_rows",
    "write_text",
]

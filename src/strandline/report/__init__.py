"""What people see of a differential: layouts, files, SQL, words, JSON and an HTML report.

Importing this loads no Spark, DuckDB or sqlglot.
"""

from strandline.report.examples import Cell, Example, examples
from strandline.report.html_report import html_report
from strandline.report.layouts import LAYOUTS, column_by_column, lay_out, left, right, side_by_side, sparse
from strandline.report.paths import Difference, changed_paths, differences
from strandline.report.positions import Positions, combined, positions, positions_by_key
from strandline.report.run_facts import Retyped, RunFacts, SchemaDrift, schema_drift, summary_json
from strandline.report.sql_merge import DIALECTS, sql_merge
from strandline.report.text_report import summary_view, summary_words
from strandline.report.writers import FORMATS, Out, WrittenFile, format_of, write_out, write_rows, write_text

__all__ = [
    "DIALECTS",
    "FORMATS",
    "LAYOUTS",
    "Cell",
    "Difference",
    "Example",
    "Out",
    "Positions",
    "Retyped",
    "RunFacts",
    "SchemaDrift",
    "WrittenFile",
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

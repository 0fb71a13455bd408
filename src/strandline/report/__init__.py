"""What people see of a differential: layouts, files, SQL, words, JSON and an HTML report.

Importing this loads no Spark, DuckDB or sqlglot.
"""

from strandline.report.append import append_changes
from strandline.report.examples import pick_examples, sample_changes
from strandline.report.html import SHOWN, changes_html, changes_page, first_rows, html_report, rows_html, schema_html
from strandline.report.html_style import STYLE
from strandline.report.layouts import (
    cdf,
    column_by_column,
    debezium,
    left,
    right,
    side_by_side,
    sparse,
)
from strandline.report.positions import MARK, positions_by_key
from strandline.report.run_facts import RunFacts, facts_of, summary_json
from strandline.report.sql import sql_merge
from strandline.report.text_report import summary_view, summary_words
from strandline.report.values import check_objects, json_lines
from strandline.report.writers import (
    Out,
    format_of,
    write_changes,
    write_out,
    write_rows,
    write_text,
)

"""SQL text that our own code writes: identifiers and text literals, quoted so that they can be nothing else.

The form is standard SQL, which DuckDB, PostgreSQL and SQLite share. What users write is parsed, never pasted: see
`expressions`.
"""

from __future__ import annotations


def quoted(*names: str | None) -> str:
    """An identifier, qualified where more than one name is given; None stands for no qualifier.

    >>> quoted('odd"name'), quoted("shop", "orders"), quoted(None, "orders")
    ('"odd""name"', '"shop"."orders"', '"orders"')
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names if name is not None)


def quoted_text(text: str) -> str:
    """A text as a literal.

    >>> print(quoted_text("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"

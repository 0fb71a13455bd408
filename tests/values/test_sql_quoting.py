"""What our own code writes into SQL stays what it is, whatever its characters are."""

from __future__ import annotations

import sqlite3

import duckdb
import pytest

from strandline.values import quoted, quoted_text

ODD = ("plain", "two words", 'a "quoted" one', "it's", "semi;colon --", "select", "é\n☃", "'", '"')


@pytest.mark.parametrize("text", ODD)
def test_a_name_and_a_text_come_back_as_they_were(text: str) -> None:
    sql = f"SELECT {quoted_text(text)} AS {quoted(text)}"
    in_duckdb = duckdb.connect(":memory:").execute(sql)
    in_sqlite = sqlite3.connect(":memory:").execute(sql)
    assert in_duckdb.description is not None
    assert (in_duckdb.description[0][0], in_duckdb.fetchall()) == (text, [(text,)])
    assert (in_sqlite.description[0][0], in_sqlite.fetchall()) == (text, [(text,)])


def test_a_qualified_name_is_quoted_part_by_part() -> None:
    assert quoted("shop", 'odd"name') == '"shop"."odd""name"'
    assert quoted(None, "orders") == '"orders"'

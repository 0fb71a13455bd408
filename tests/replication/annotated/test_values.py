"""A value of a base arrives as it is or is refused by name, and `verify` reads it in another way."""

from __future__ import annotations

import itertools
import sqlite3
from datetime import UTC
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import rows_at
from tests.replication.servers import Postgres

from strandline.errors import StorageError
from strandline.relations import typed_batch
from strandline.replication.annotated_base import base

NUMBERS = itertools.count()
text = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=5)
LITERALS: dict[str, Any] = {
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double precision": st.floats(),
    "real": st.floats(width=32),
    "boolean": st.booleans(),
    "numeric(7,3)": st.one_of(st.decimals(-9999, 9999, places=3), st.just(Decimal("NaN"))),
    "text": text,
    "bytea": st.binary(max_size=5),
    "date": st.one_of(st.dates(), st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"])),
    "timestamp": st.one_of(st.datetimes(), st.sampled_from(["infinity", "294276-12-31", "4713-01-01 BC"])),
    "timestamptz": st.one_of(st.datetimes(timezones=st.just(UTC)), st.sampled_from(["-infinity", "294276-12-31"])),
    "time": st.one_of(st.times(), st.just("24:00")),
}
NO_DECIMAL = "Decimal('NaN')"
REFUSED = ("infinity", "-infinity", "294276-12-31", "24:00")


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"


@settings(max_examples=examples(8))
@given(row=st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in LITERALS.items()}))
@example(row={**dict.fromkeys(LITERALS), "timestamp": "infinity"})
@example(row={**dict.fromkeys(LITERALS), "numeric(7,3)": Decimal("NaN")})
@example(row={**dict.fromkeys(LITERALS), "date": "0044-03-15 BC"})
def test_a_value_of_postgresql_arrives_or_is_refused_by_name(
    postgres: Postgres, tmp_path: Any, row: dict[str, Any]
) -> None:
    source, number = of_postgres(postgres, tmp_path), next(NUMBERS)
    names = {kind: f"c{place}" for place, kind in enumerate(LITERALS)}
    source.run(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, {', '.join(f'{n} {k}' for k, n in names.items())})")
    values = ", ".join("NULL" if row[kind] is None else literal(row[kind]) for kind in LITERALS)
    source.run(f"INSERT INTO t{number} VALUES (1, {values})")
    strange = [n for k, n in names.items() if str(row[k]) in REFUSED or (str(row[k]) == "NaN" and k == "numeric(7,3)")]
    here, url = base(source.url, source.table(f"t{number}")), source.target("duckdb", f"copy_{number}")
    if strange:
        with pytest.raises(StorageError, match="|".join(strange)):
            here.replicate(url)
        return
    copy = here.replicate(url)
    assert copy.verify().equal
    with duckdb.connect(str(tmp_path / f"copy_{number}.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(n if not isinstance(row[k], str) else f"{n}::text" for k, n in names.items())
        arrived = connection.execute(f"SELECT {columns} FROM copy_{number}").fetchone()
    assert arrived is not None
    for kind, there in zip(LITERALS, arrived, strict=True):
        value = row[kind]
        if isinstance(value, str) and kind != "text":
            assert there.split()[0] in value
        else:
            assert repr(there) == repr(expected(kind, value))


def expected(kind: str, value: Any) -> Any:
    return value.quantize(Decimal("0.001")) if isinstance(value, Decimal) else value


KINDS = {
    "INT": (int,),
    "REAL": (int, float),
    "TEXT": (int, float, str),
    "BLOB": (bytes,),
    "BOOLEAN": (int,),
}
"""What a column of SQLite may hold, by its declaration, once its affinity had its way; the rest is refused."""


@settings(max_examples=examples(25))
@given(
    declared=st.sampled_from(sorted(KINDS)),
    value=st.one_of(
        st.none(),
        st.integers(-3, 3),
        st.floats(allow_nan=False),
        st.sampled_from(["abc", "false"]),
        st.binary(max_size=2),
    ),
    kind=st.sampled_from(["duckdb", "sqlite"]),
)
@example(declared="INT", value=7.5, kind="duckdb")
@example(declared="BOOLEAN", value="false", kind="duckdb")
@example(declared="TEXT", value=b"ab", kind="sqlite")
def test_a_value_of_sqlite_arrives_or_is_refused_by_name(sqlite: Source, declared: str, value: Any, kind: str) -> None:
    number = next(NUMBERS)
    connection = sqlite3.connect(sqlite.folder / "base.db", isolation_level=None)
    connection.execute(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, x {declared})")
    connection.execute(f"INSERT INTO t{number} VALUES (1, NULL), (2, ?)", [value])
    stored = connection.execute(f"SELECT x FROM t{number} WHERE id = 2").fetchone()[0]
    connection.close()
    here, url = base(sqlite.url, f"t{number}"), sqlite.target(kind, f"copy_{number}")
    fits = stored is None or isinstance(stored, KINDS[declared])
    if not fits or (declared == "BOOLEAN" and stored not in (0, 1, None)):
        with pytest.raises(StorageError, match="'x'"):
            here.replicate(url)
        return
    assert here.replicate(url).verify().equal
    file = str(sqlite.folder / f"copy_{number}.{kind}")
    with duckdb.connect(file) if kind == "duckdb" else sqlite3.connect(file) as copied:
        assert copied.execute(f"SELECT x FROM copy_{number} ORDER BY id").fetchall() == [(None,), (stored,)]


def test_verify_finds_what_the_way_that_copied_got_wrong(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading that fills copies is made to lose a digit; the one that verifies them is another."""
    source.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    source.run("INSERT INTO t VALUES (1, 75)")
    here = base(source.url, source.table("t"))

    def wrong(batch: Any, schema: Any, address: Any) -> Any:
        typed = typed_batch(batch, schema, address)
        place = typed.schema.names.index("n")
        return typed.set_column(place, schema.field(place), pa.array([7] * len(typed), schema.field(place).type))

    with monkeypatch.context() as patch:
        patch.setattr("strandline.replication.senders.annotated.fix_up.typed_batch", wrong)
        copy = here.replicate(source.target("duckdb", "copy"))
        assert copy.verify().different == 1
    copy.repair()
    assert copy.verify().equal


def test_generated_columns_are_copied_restrict_and_follow_what_they_are_made_of(sqlite: Source) -> None:
    sqlite.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v INT, g INT AS (v * 2), h TEXT AS ('x' || v) STORED, z)")
    sqlite.run("INSERT INTO t (id, v) VALUES (1, 5), (2, 6), (3, 7)")
    here, urls = base(sqlite.url, "t"), [sqlite.target("sqlite", name) for name in ("all", "some")]
    copies = [here.replicate(urls[0]), here.replicate(urls[1], columns=["id", "g"], where="g > 11 AND h <> 'x9'")]
    for sql in ("SELECT 1", "UPDATE t SET v = v + 2", "ALTER TABLE t ADD COLUMN n INTEGER AS (v * v)"):
        sqlite.run(sql)
        for copy in copies:
            copy.refresh("differential")
            assert copy.verify().equal
        assert rows_at(urls[0]) == sqlite.run("SELECT id, v, g, h, z FROM t")
        assert rows_at(urls[1]) == sqlite.run("SELECT id, g FROM t WHERE g > 11 AND h <> 'x9'")


def test_a_long_text_is_copied_and_compared_and_not_quoted(sqlite: Source) -> None:
    sqlite.run("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT, b BLOB)")
    sqlite.run(f"INSERT INTO t VALUES (1, '{'é' * 500_000}', zeroblob(500000))")
    copy = base(sqlite.url, "t").replicate(sqlite.target("sqlite", "copy"))
    assert copy.verify().equal
    sqlite.run("UPDATE t SET b = s")
    with pytest.raises(StorageError, match="'b' holds a value that is no binary: 'ééé") as refused:
        copy.refresh()
    assert len(str(refused.value)) < 500


def test_columns_of_no_type_keep_every_digit_and_refuse_bytes(sqlite: Source) -> None:
    sqlite.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n DECIMAL(20, 2))")
    numbers = [12345678901234.56, 12345678901234.57, 0.1 + 0.2, 0.3, 9007199254740991.5, 1e300, -2.5]
    sqlite.run("INSERT INTO t VALUES " + ", ".join(f"({key}, {number!r})" for key, number in enumerate(numbers)))
    sqlite.run("INSERT INTO t VALUES (90, 7), (91, 'seven')")
    url = sqlite.target("duckdb", "copy")
    copy = base(sqlite.url, "t").replicate(url)
    texts = [str(text) for _, text in rows_at(url)]
    assert [float(text) for text in texts[:-2]] == numbers
    assert texts[3:4] + texts[-2:] == ["0.3", "7", "seven"]
    assert copy.verify().equal
    sqlite.run("UPDATE t SET n = x'3132' WHERE id = 1")
    with pytest.raises(StorageError, match="'n'"):
        copy.refresh()

"""Schemes: what signatures were made with; signatures of tables."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from strandline.errors import InputError, SchemaError, StateError
from strandline.values.signatures import column_row_signatures, row_signatures
from strandline.values.signatures.scheme import Scheme, kind_of, scheme_of
from strandline.values.signatures.sl3 import second_seed, signature

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "name": ["ada", None, "grace"],
        "price": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(9, 2)),
    }
)
SCHEME = scheme_of(TABLE.schema, seed=5)


def test_a_scheme_survives_json() -> None:
    scheme = replace(SCHEME, bits=96, normalisation=(("name", "trimmed"), ("name", "case-folded")))
    assert Scheme.from_json(json.loads(json.dumps(scheme.to_json()))) == scheme


def test_equal_schemes_have_no_differences() -> None:
    assert SCHEME.differences(scheme_of(TABLE.schema, seed=5)) == ()


def test_differences_are_said_in_words() -> None:
    other = scheme_of(
        pa.schema([("name", pa.int64()), ("id", pa.int64()), ("new", pa.bool_())]),
        seed=6,
        bits=128,
        normalisation=[("name", "trimmed")],
    )
    assert SCHEME.differences(other) == (
        "seed: 0000000000000005 was saved, 0000000000000006 is asked for",
        "bits: 64 was saved, 128 is asked for",
        "normalisation: none was saved, name trimmed is asked for",
        "column price was saved and is not asked for",
        "column new is asked for and was not saved",
        "column name: string was saved, integer is asked for",
    )


def test_the_order_of_columns_is_part_of_the_scheme() -> None:
    other = scheme_of(TABLE.schema, ["name", "id", "price"], seed=5)
    assert SCHEME.differences(other) == ("column order: id, name, price was saved, name, id, price is asked for",)
    assert SCHEME.fingerprint != other.fingerprint


def test_kinds_forget_what_hashing_does_not_see() -> None:
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.dictionary(pa.int32(), pa.large_string())),
            ("price", pa.decimal256(60, 2)),
        ]
    )
    assert scheme_of(wide, seed=5) == SCHEME


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (pa.uint32(), "integer"),
        (pa.uint64(), "integer"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.timestamp("s", "UTC"), "instant"),
        (pa.list_(pa.int8(), 3), "list<integer>"),
        (pa.map_(pa.string(), pa.float32()), "map<string, float>"),
        (pa.struct([("a b", pa.date64())]), 'struct<"a b": date>'),
        (pa.uuid(), "binary"),
    ],
)
def test_kind_of(type_: pa.DataType, kind: str) -> None:
    assert kind_of(type_) == kind


def test_intervals_have_no_kind() -> None:
    with pytest.raises(SchemaError, match="month_day_nano_interval"):
        kind_of(pa.month_day_nano_interval())


def test_a_missing_column_is_named() -> None:
    with pytest.raises(SchemaError, match="'nmae'"):
        scheme_of(TABLE.schema, ["id", "nmae"])


@pytest.mark.parametrize("bits", [0, 31, 129])
def test_bits_outside_32_to_128_are_refused(bits: int) -> None:
    with pytest.raises(InputError, match="32 to 128"):
        scheme_of(TABLE.schema, bits=bits)


@pytest.mark.parametrize("damage", [{"algorithm": "sl0"}, {"fingerprint": "0"}, {"bits": "many"}, {"seed": None}])
def test_a_damaged_description_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(StateError):
        Scheme.from_json(SCHEME.to_json() | damage)


@pytest.mark.parametrize("bits", [32, 48, 64])
def test_fewer_bits_are_the_low_ones(bits: int) -> None:
    whole = signature([TABLE["id"], TABLE["name"], TABLE["price"]], 5)
    found = row_signatures(TABLE, replace(SCHEME, bits=bits))
    assert found.tolist() == [int(word) % 2**bits for word in whole]


@pytest.mark.parametrize("bits", [65, 100, 128])
def test_more_bits_come_from_a_second_seed(bits: int) -> None:
    columns = [TABLE["id"], TABLE["name"], TABLE["price"]]
    found = row_signatures(TABLE, replace(SCHEME, bits=bits))
    assert found.shape == (3, 2)
    assert found[:, 0].tolist() == signature(columns, 5).tolist()
    assert found[:, 1].tolist() == [int(w) % 2 ** (bits - 64) for w in signature(columns, second_seed(5))]


def test_decimals_are_hashed_by_value_whatever_their_scale() -> None:
    finer = TABLE.set_column(2, "price", TABLE["price"].cast(pa.decimal128(20, 6)))
    coarser = TABLE.set_column(2, "price", pa.array([Decimal("1.5"), Decimal(2), None], pa.decimal128(5, 1)))
    assert row_signatures(finer, SCHEME).tolist() == row_signatures(TABLE, SCHEME).tolist()
    assert row_signatures(coarser, SCHEME).tolist() == row_signatures(TABLE, SCHEME).tolist()


def test_nested_decimals_are_hashed_by_value_whatever_their_scale() -> None:
    def table(precision: int, scale: int) -> pa.Table:
        inner = pa.struct([('odd "decimal(9)', pa.list_(pa.decimal128(precision, scale))), ("n", pa.int8())])
        return pa.table({"s": pa.array([{'odd "decimal(9)': [Decimal("1.5"), None], "n": 1}, None], inner)})

    scheme = scheme_of(table(9, 2).schema)
    assert row_signatures(table(20, 5), scheme).tolist() == row_signatures(table(9, 2), scheme).tolist()


def test_a_decimal_finer_than_any_saved_one_is_another_value() -> None:
    finer = TABLE.set_column(2, "price", pa.array([Decimal("1.501"), Decimal(2), None], pa.decimal128(9, 3)))
    assert (row_signatures(finer, SCHEME) != row_signatures(TABLE, SCHEME)).tolist() == [True, False, False]


def test_a_column_of_nulls_alone_meets_any_kind() -> None:
    nulls = TABLE.set_column(1, "name", pa.nulls(3))
    texts = TABLE.set_column(1, "name", pa.nulls(3, pa.string()))
    assert SCHEME.differences(scheme_of(nulls.schema, seed=5)) == ()
    assert row_signatures(nulls, SCHEME).tolist() == row_signatures(texts, SCHEME).tolist()


def test_signatures_of_an_older_algorithm_are_refused_with_what_to_do() -> None:
    with pytest.raises(StateError, match=r"made by 'sl2'; this version knows 'sl3'.*--save-state"):
        Scheme.from_json(SCHEME.to_json() | {"algorithm": "sl2"})


def test_a_retyped_column_is_refused() -> None:
    with pytest.raises(StateError, match="column name holds integer, and the signatures were made for string"):
        row_signatures(TABLE.set_column(1, "name", pa.array([1, 2, 3])), SCHEME)


def test_per_column_signatures_tell_which_column_changed() -> None:
    changed = TABLE.set_column(1, "name", pa.array(["ada", None, "hopper"]))
    before, after = column_row_signatures(TABLE, SCHEME), column_row_signatures(changed, SCHEME)
    differs = {name: np.flatnonzero(before[name] != after[name]).tolist() for name in before}
    assert differs == {"id": [], "name": [2], "price": []}

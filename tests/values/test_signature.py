"""sl3: the specification against a plain-Python oracle, the engines against each other, golden vectors."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.values.arrow_strategies import arrays
from tests.values.properties import for_all
from tests.values.sl3_oracle import oracle_signature

from strandline.errors import InputError, SchemaError
from strandline.values.signatures import sl3
from strandline.values.signatures.sl3 import second_seed, signature

SEED = 0x0123456789ABCDEF


def both(columns: list[Any], seed: int = SEED) -> list[int]:
    """The signatures, after checking that the engines agree."""
    reference = signature(columns, seed, engine="numpy")
    assert signature(columns, seed, engine="numba").tolist() == reference.tolist()
    return [int(word) for word in reference]


@for_all(examples=150, array=arrays(), seed=st.integers(0, 2**64 - 1))
def test_both_engines_agree_with_the_oracle_on_every_type(array: pa.Array, seed: int) -> None:
    assert both([array], seed) == oracle_signature([array], seed)


@for_all(examples=60, data=st.data(), rows=st.integers(1, 6), width=st.integers(1, 5))
def test_rows_of_several_columns_agree_with_the_oracle(data: st.DataObject, rows: int, width: int) -> None:
    columns = [data.draw(arrays(rows=rows)) for _ in range(width)]
    assert both(columns) == oracle_signature(columns, SEED)


@for_all(examples=60, array=arrays(rows=8), cut=st.integers(0, 8))
def test_slices_and_chunks_do_not_matter(array: pa.Array, cut: int) -> None:
    whole = both([array])
    assert both([array.slice(cut)]) == whole[cut:]
    assert both([pa.chunked_array([array.slice(0, cut), array.slice(cut)])]) == whole


def test_long_columns_are_hashed_block_by_block_without_a_seam() -> None:
    rows = 100_000
    numbers = np.arange(rows)
    texts = pa.array([f"{'x' * (n % 23)}{n}" for n in range(rows)])
    columns = [pa.array(numbers, mask=numbers % 7 == 0), texts, pa.array(numbers * 0.5)]
    whole = both(columns)
    chosen = [0, 1, 16_383, 16_384, 32_767, 32_768, 65_536, rows - 1]
    assert [whole[n] for n in chosen] == oracle_signature([c.take(pa.array(chosen)) for c in columns], SEED)


def test_long_texts_and_lists_are_hashed_alike_beside_many_rows_and_alone() -> None:
    lengths = [0, 7, 8, 9, 200, 201, *range(40)]
    texts = pa.array(["é" * length for length in lengths])
    lists = pa.array([list(range(length)) for length in lengths])
    whole = both([texts, lists])
    assert whole == oracle_signature([texts, lists], SEED)
    assert whole == [both([texts.slice(row, 1), lists.slice(row, 1)])[0] for row in range(len(lengths))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([-5, None, 7], pa.int8()), pa.array([-5, None, 7], pa.int64())),
        (pa.array([5, 200], pa.uint8()), pa.array([5, 200], pa.int32())),
        (pa.array([0.0, float("nan"), 1.5]), pa.array([-0.0, -float("nan"), 1.5])),
        (pa.array([1.5, None], pa.float16()), pa.array([1.5, None], pa.float64())),
        (pa.array(["a", None, "ü" * 9]), pa.array(["a", None, "ü" * 9]).dictionary_encode()),
        (
            pa.array(["a", None, "b" * 20], pa.string_view()),
            pa.array([b"a", None, b"b" * 20], pa.large_binary()),
        ),
        (pa.array([b"12345"], pa.binary(5)), pa.array(["12345"])),
        (pa.array([1, None], pa.timestamp("s")), pa.array([10**9, None], pa.timestamp("ns", "UTC"))),
        (pa.array([1], pa.timestamp("us", "Europe/Paris")), pa.array([1], pa.timestamp("us", "UTC"))),
        (pa.array([3], pa.time32("s")), pa.array([3 * 10**9], pa.time64("ns"))),
        (pa.array([3], pa.duration("ms")), pa.array([3000], pa.duration("us"))),
        (pa.array([3, -1], pa.date32()), pa.array([3 * 86_400_000, -86_400_000], pa.date64())),
        (
            pa.array([Decimal("1.50"), None], pa.decimal32(5, 2)),
            pa.array([Decimal("1.50"), None], pa.decimal256(60, 2)),
        ),
        (pa.array([Decimal("-1.5")], pa.decimal64(9, 1)), pa.array([Decimal("-1.5")], pa.decimal128(38, 1))),
        (
            pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
            pa.array([[1, 2], None], pa.large_list(pa.int64())),
        ),
        (pa.array([[1, 2], []], pa.list_view(pa.int8())), pa.array([[1, 2], []], pa.list_(pa.int64()))),
        (
            pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("b", None), ("a", 1)]], pa.map_(pa.string(), pa.int32())),
        ),
        (pa.array([None, None], pa.null()), pa.array([None, None], pa.string())),
        (pa.array([1, 1, 2]), pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2])),
    ],
    ids=lambda array: str(array.type).replace(" ", ""),
)
def test_equal_values_have_equal_signatures(one: pa.Array, other: pa.Array) -> None:
    assert both([one]) == both([other])


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", "\0", "\0\0", "\0" * 8, "\0" * 9, None]),
        pa.array([[], [None], [None, None], None, [0], [0, 0]], pa.list_(pa.int64())),
        pa.array([{"a": None}, None, {"a": 0}], pa.struct([("a", pa.int64())])),
        pa.array([0, 1, 1000, 1001, None], pa.timestamp("ns")),
        pa.array([Decimal(0), Decimal(2**64), Decimal(2**127), Decimal(-1), None], pa.decimal256(60, 0)),
        pa.array([[("a", 1)], [("a", None)], [("b", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        pa.array([0.0, 1.0, float("inf"), float("-inf"), float("nan"), None]),
        pa.array([False, True, None]),
    ],
    ids=lambda array: str(array.type).replace(" ", ""),
)
def test_values_that_look_alike_have_different_signatures(values: pa.Array) -> None:
    found = both([values])
    assert len(set(found)) == len(found)


def test_moving_a_value_or_a_null_to_the_next_column_changes_the_signature() -> None:
    a = pa.array([1, None, 1, 2, None])
    b = pa.array([None, 1, 2, 1, None])
    assert len(set(both([a, b]))) == 5


def test_a_dictionary_may_hold_unused_values_nulls_and_duplicates() -> None:
    indices = pa.array([0, 1, None, 2, 0, 3], pa.int8())
    encoded = pa.DictionaryArray.from_arrays(indices, pa.array(["x", None, "y", "x", "unused"]))
    assert both([encoded]) == both([pa.array(["x", None, None, "y", "x", "x"])])
    decimals = pa.array([Decimal("1.5"), None])
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 0, None, 0]), decimals)
    assert both([encoded]) == both([decimals.take(pa.array([1, 0, 0, None, 0]))])
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert both([nothing]) == both([pa.array([None, None], pa.string())])


def test_extension_types_hash_as_their_storage() -> None:
    stored = pa.array([bytes(range(16)), None], pa.binary(16))
    assert both([pa.ExtensionArray.from_storage(pa.uuid(), stored)]) == both([stored])


GOLDEN = [
    (
        pa.array([0, 1, -1, 2**63 - 1, None], pa.int64()),
        [0xB8D5D379847AAF50, 0xE58CC2C27860A21D, 0x2924DB4CC4C115B8, 0xE68A5A18812EBC53, 0xE5080648D5077AA5],
    ),
    (
        pa.array([2**64 - 1], pa.uint64()),
        [0xE8FA3C7CB91E7FC8],
    ),
    (
        pa.array([False, True]),
        [0xB8D5D379847AAF50, 0xE58CC2C27860A21D],
    ),
    (
        pa.array([0.0, 1.5, float("nan"), float("-inf")]),
        [0xB8D5D379847AAF50, 0xE45574FCE2112417, 0x547B29E02F8A0D8C, 0x29B74753A3407DF7],
    ),
    (
        pa.array([Decimal("0.00"), Decimal("-1.50")], pa.decimal128(9, 2)),
        [0x59DBC3FFC5D88727, 0xB421FEB4B9F5C4A5],
    ),
    (
        pa.array([Decimal(2**127)], pa.decimal256(60, 0)),
        [0xEB483B7422A58F8E],
    ),
    (
        pa.array([0, 20_000], pa.date32()),
        [0xB8D5D379847AAF50, 0x5F7BDB7C4536CAB9],
    ),
    (
        pa.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_000], pa.timestamp("ns", "UTC")),
        [0x94038E7EB2AABBD9, 0x0A589A68187E1109],
    ),
    (
        pa.array(["", "a", "eightbyt", "nine byte", "Strandlinie: Grün"]),
        [0x1B380ECF624D12E8, 0xD5B634BC03556C91, 0x119314EA2421AF17, 0x288605F00689A244, 0xC30A22DCC59574DE],
    ),
    (
        pa.array([b"", bytes(8)], pa.binary()),
        [0x1B380ECF624D12E8, 0xB3A1F394B290934A],
    ),
    (
        pa.array([[], [1, None], None], pa.list_(pa.int64())),
        [0x1B380ECF624D12E8, 0xA646CA602BC263AC, 0xE5080648D5077AA5],
    ),
    (
        pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        [0xBE2635224E505A57, 0xE5080648D5077AA5],
    ),
    (
        pa.array([[("k", 1), ("l", 2)]], pa.map_(pa.string(), pa.int64())),
        [0x6E60D62DEC5BD9BC],
    ),
    (
        pa.array([None], pa.null()),
        [0xE5080648D5077AA5],
    ),
]


@pytest.mark.parametrize(("values", "expected"), GOLDEN, ids=lambda part: str(getattr(part, "type", "words")))
def test_golden_vectors_never_change(values: pa.Array, expected: list[int]) -> None:
    """Saved state depends on them: a change here needs a new name for the algorithm."""
    assert both([values]) == expected


def test_no_rows_have_no_signatures() -> None:
    assert both([pa.array([], pa.string())]) == []
    assert both([pa.chunked_array([], pa.int64())]) == []


def test_the_second_seed_is_splitmix64s_next() -> None:
    assert second_seed(0) == 0xE220A8397B1DCDAF


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="different lengths"):
        signature([pa.array([1]), pa.array([1, 2])], SEED)


def test_a_signature_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least one column"):
        signature([], SEED)


def test_types_without_a_signature_are_refused_by_name() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(SchemaError, match="union"):
        signature([union], SEED)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="no engine"):
        signature([pa.array([1])], SEED, engine="abacus")  # type: ignore[arg-type]


def test_auto_takes_numba_once_enough_was_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "strandline.values.signatures.numba_engine", raising=False)
    monkeypatch.setattr(sl3, "_hashed_with_numpy", 0)
    monkeypatch.setattr(sl3, "NUMBA_PAYS_AFTER", 100)
    assert [sl3.compiled_pays(40) for _ in range(4)] == [False, False, True, True]


def test_numba_is_not_loaded_before_there_is_work_for_it() -> None:
    modules = "strandline.values.signatures, strandline.differential.window, strandline.differential.cost"
    code = f"import sys, {modules}; raise SystemExit('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src"}, check=False)
    assert done.returncode == 0


_NESTED = pa.struct([("a", pa.int64())])
_NAMED = pa.struct([("a", pa.string())])
_DEEP = pa.struct([("a", pa.int64()), ("b", _NESTED)])


@pytest.mark.parametrize(
    ("kinds", "one", "other"),
    [
        ([pa.int64(), _NESTED], [5, {"a": 7}], [7, {"a": 5}]),
        ([pa.int64(), _NESTED], [5, {"a": None}], [None, {"a": 5}]),
        ([pa.string(), _NAMED], ["", {"a": None}], [None, {"a": ""}]),
        ([pa.list_(pa.bool_()), pa.struct([("a", pa.list_(pa.bool_()))])], [[], {"a": None}], [None, {"a": []}]),
        ([_NESTED, _NESTED], [{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]),
        ([_DEEP], [{"a": 1, "b": {"a": 2}}], [{"a": 2, "b": {"a": 1}}]),
        ([pa.list_(_DEEP)], [[{"a": 1, "b": {"a": None}}]], [[{"a": None, "b": {"a": 1}}]]),
        ([pa.list_(pa.int64()), pa.int64()], [[1], 2], [[2], 1]),
        ([pa.string(), pa.string()], ["", None], [None, ""]),
    ],
    ids=str,
)
def test_values_that_change_places_change_the_signature(
    kinds: list[pa.DataType], one: list[Any], other: list[Any]
) -> None:
    rows = [pa.array([first, second], kind) for kind, first, second in zip(kinds, one, other, strict=True)]
    words = both(rows)
    assert words[0] != words[1]

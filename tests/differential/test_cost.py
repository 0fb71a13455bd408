"""The cost model: the paper's figure 6 to the digit, and the choice among algorithms with real sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.oracles.labio_costs import (
    MEGABYTE,
    PaperAlgorithm,
    PaperCost,
    PaperSetting,
    crossover,
    in_memory_limit,
    paper_costs,
    paper_io,
)

from strandline.differential.cost import CostEstimate, SideSize, Sizes, choose, estimates
from strandline.errors import InputError

E = 2.3e-10
FIGURE_6: dict[int, dict[PaperAlgorithm, PaperCost]] = {
    256: {
        "SM": PaperCost(81_920, 0, 16_384, 0),
        "SMC1": PaperCost(51_336, 37, 16_384, E),
        "SMC2": PaperCost(40_833, 50, 1_639, E),
        "PH": PaperCost(65_536, 20, 16_384, 0),
        "PHC1": PaperCost(18_568, 77, 16_384, E),
        "PHC2": PaperCost(19_660, 76, 1_639, E),
        "W": PaperCost(32_768, 60, 0, 0),
    },
    1024: {
        "SM": PaperCost(327_680, 0, 65_536, 0),
        "SMC1": PaperCost(205_346, 37, 65_536, E),
        "SMC2": PaperCost(163_333, 50, 6_554, E),
        "PH": PaperCost(262_144, 20, 65_536, 0),
        "PHC1": PaperCost(205_346, 37, 65_536, E),
        "PHC2": PaperCost(156_779, 52, 6_554, E),
        "W": PaperCost(131_072, 60, 0, 0),
    },
}


@pytest.mark.parametrize("megabytes", [256, 1024])
def test_figure_6(megabytes: int) -> None:
    assert paper_costs(PaperSetting(file=megabytes * MEGABYTE)) == FIGURE_6[megabytes]


def test_signatures_of_480_and_320_megabytes_just_fit_in_memory() -> None:
    setting = PaperSetting()
    assert in_memory_limit(setting, "kb") == 480 * MEGABYTE
    assert in_memory_limit(setting, "kbp") == 320 * MEGABYTE
    for name, limit in (("PHC1", 480), ("PHC2", 320)):
        at = paper_io(PaperSetting(file=limit * MEGABYTE))
        above = paper_io(PaperSetting(file=limit * MEGABYTE + 1))
        assert at[name] < at["W"] < above[name]  # type: ignore[index]


def test_pointers_pay_below_a_change_of_1_7_per_cent() -> None:
    assert round(100 * crossover(PaperSetting(), "PHC"), 3) == 1.678
    assert round(100 * crossover(PaperSetting(), "SMC"), 3) == 1.587


def test_the_crossover_is_where_both_forms_cost_the_same() -> None:
    large = PaperSetting(file=1024 * MEGABYTE)
    for family, one, other in (("PHC", "PHC1", "PHC2"), ("SMC", "SMC1", "SMC2")):
        at = paper_io(replace(large, changed=crossover(large, family)))  # type: ignore[arg-type]
        assert at[one] == pytest.approx(at[other])  # type: ignore[index]


def sizes(**changed: Any) -> Sizes:
    usual = Sizes(
        old=SideSize(bytes=150_000_000, rows=5_000_000),
        new=SideSize(bytes=151_000_000, rows=5_010_000),
        key_width=8,
        memory=1_000_000_000,
    )
    return replace(usual, **changed)


def by_name(given: Sizes) -> dict[str, CostEstimate]:
    return {estimate.algorithm: estimate for estimate in estimates(given)}


def test_every_algorithm_gets_an_estimate() -> None:
    assert set(by_name(sizes())) == {"merge", "hash", "kb", "kbp", "window"}


def test_clustered_sides_are_merged_without_a_shuffle() -> None:
    chosen = choose(estimates(sizes(clustered=True)))
    assert chosen.algorithm == "merge"
    assert (chosen.bytes_read, chosen.bytes_shuffled, chosen.bytes_written) == (301_000_000, 0, 0)
    assert chosen.why.startswith("both sides are stored in key order")


def test_sides_nearly_in_key_order_are_merged_too_and_the_reason_says_so() -> None:
    chosen = choose(estimates(sizes(clustered=True, between=0.012, whole=True)))
    assert (chosen.algorithm, chosen.bytes_shuffled) == ("merge", 0)
    assert chosen.why.startswith("both sides are stored nearly in key order")
    assert "but the 1.2% of the rows that lie between ranges" in chosen.why


def test_unclustered_sides_are_shuffled_whole() -> None:
    found = by_name(sizes())
    assert found["merge"].bytes_shuffled == found["hash"].bytes_shuffled == 301_000_000
    assert choose(found.values()).algorithm == "hash"


def test_unclustered_sides_that_fit_in_memory_meet_there() -> None:
    chosen = choose(estimates(sizes(whole=True)))
    assert (chosen.algorithm, chosen.bytes_shuffled) == ("hash", 0)
    assert "fit in memory" in chosen.why


def test_saved_signatures_in_memory_read_only_the_new_side() -> None:
    chosen = choose(estimates(sizes(state="kb")))
    assert chosen.algorithm == "kb"
    assert chosen.bytes_read == 151_000_000 + 5_000_000 * 16
    assert chosen.bytes_written == 5_010_000 * 16
    assert chosen.bytes_shuffled == 0
    assert "fit in memory" in chosen.why


def test_few_changes_are_fetched_by_pointer_when_signatures_outgrow_memory() -> None:
    few, many = (sizes(state="kbp", memory=10_000_000, changed=share) for share in (0.00001, 0.2))
    wide: dict[str, Any] = {"old": SideSize(10**10, 5_000_000), "new": SideSize(10**10, 5_000_000)}
    assert choose(estimates(replace(few, **wide))).algorithm == "kbp"
    assert by_name(replace(few, **wide))["kbp"].bytes_shuffled == 2 * 5_000_000 * 24
    assert by_name(many)["kbp"].bytes_read == 5_000_000 * 24 + 2 * 151_000_000


def test_without_state_signatures_are_not_possible() -> None:
    found = by_name(sizes())
    assert not found["kb"].possible
    assert not found["kbp"].possible
    assert found["kb"].why == "there are no saved signatures of the old side"


def test_a_window_over_records_of_unknown_order_spills_them_all() -> None:
    assert by_name(sizes(clustered=True))["window"].cost == 301_000_000
    assert by_name(sizes())["window"].bytes_written == 301_000_000
    unknown = by_name(sizes())["window"]
    assert unknown.bytes_written == 301_000_000


def test_the_reason_names_the_next_best() -> None:
    assert choose(estimates(sizes(clustered=True))).why.endswith("301.0 MB to move, 301.0 MB with window")


def test_nothing_possible_is_an_error() -> None:
    with pytest.raises(InputError, match="none of the algorithms"):
        choose([CostEstimate("kb", 1, 0, 0, "no state", possible=False)])

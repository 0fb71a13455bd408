"""The cost model of Labio and Garcia-Molina (figures 5 and 6), in blocks of a disk: figure 6 comes out to the digit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

MEGABYTE = 2**20
ERROR_OF_32_BITS = 2.3e-10

PaperAlgorithm: TypeAlias = Literal["SM", "SMC1", "SMC2", "PH", "PHC1", "PHC2", "W"]


@dataclass(frozen=True)
class PaperSetting:
    """The variables of figure 5. Sizes are in bytes; `changed` is (U + I) / rec(F)."""

    file: int = 256 * MEGABYTE
    memory: int = 32 * MEGABYTE
    block: int = 16 * 1024
    record: int = 150
    kb_factor: float = 15
    kbp_factor: float = 10
    changed: float = 0.01

    @property
    def blocks(self) -> float:
        """|F|; both snapshots have this size."""
        return self.file / self.block

    @property
    def records(self) -> float:
        return self.file / self.record

    @property
    def changes(self) -> float:
        """U + I: each one costs a read by pointer."""
        return self.changed * self.records


@dataclass(frozen=True)
class PaperCost:
    """A row of figure 6: block operations, their saving over SM in per cent, intermediate blocks, E."""

    io: int
    saving: int
    intermediate: int
    error: float


def paper_costs(setting: PaperSetting) -> dict[PaperAlgorithm, PaperCost]:
    """Figure 6 for a setting: IO rounded down, intermediate files rounded up, savings to whole per cents."""
    exact = paper_io(setting)
    whole, compressed = setting.blocks, setting.blocks / setting.kbp_factor
    intermediate: dict[PaperAlgorithm, float] = {
        **dict.fromkeys(("SM", "SMC1", "PH", "PHC1"), whole),
        **dict.fromkeys(("SMC2", "PHC2"), compressed),
        "W": 0,
    }
    return {
        name: PaperCost(
            io=math.floor(io),
            saving=round(100 * (1 - io / exact["SM"])),
            intermediate=math.ceil(intermediate[name]),
            error=ERROR_OF_32_BITS if name in ("SMC1", "SMC2", "PHC1", "PHC2") else 0,
        )
        for name, io in exact.items()
    }


def paper_io(setting: PaperSetting) -> dict[PaperAlgorithm, float]:
    """The formulas of sections 3 and 4, unrounded. F1 and F2 have one size, f1 and f2 another."""
    full, kb, kbp = setting.blocks, setting.blocks / setting.kb_factor, setting.blocks / setting.kbp_factor
    changes = setting.changes
    kb_in_memory = setting.file <= in_memory_limit(setting, "kb")
    kbp_in_memory = setting.file <= in_memory_limit(setting, "kbp")
    return {
        "SM": full + 4 * full,
        "SMC1": kb + 3 * full + kb,
        "SMC2": kbp + full + 3 * kbp + changes,
        "PH": full + 3 * full,
        "PHC1": kb + full + kb if kb_in_memory else kb + 3 * full + kb,
        # In memory each record of F2 is at hand when its signature is compared: no read by pointer.
        "PHC2": kbp + full + kbp if kbp_in_memory else kbp + full + 2 * kbp + changes,
        "W": full + full,
    }


def in_memory_limit(setting: PaperSetting, form: Literal["kb", "kbp"]) -> float:
    """The largest file (in bytes, inclusive) whose signatures fit in memory."""
    return setting.memory * (setting.kb_factor if form == "kb" else setting.kbp_factor)


def crossover(setting: PaperSetting, family: Literal["SMC", "PHC"]) -> float:
    """The share of changes above which ⟨K, b⟩ costs less than ⟨K, b, p⟩, when neither fits in memory."""
    large = replace(setting, memory=0, changed=0.0)
    io = paper_io(large)
    saved = io["SMC1"] - io["SMC2"] if family == "SMC" else io["PHC1"] - io["PHC2"]
    return saved / large.records

"""The paper's choice between a difference table and regeneration, by its two conditions.

Maintaining the difference table pays if both conditions hold, and regeneration if neither does. If one holds, messages
are weighed against delay, by what a message costs; where a quick answer matters, the difference table is preferred, as
only there nothing is computed after the request.
"""

from __future__ import annotations

import math

from strandline.views.catalog import DEFERRED, EAGER
from strandline.views.maintenance import Choice, Load, Prices, messages


def delay_maintained(load: Load, prices: Prices) -> float:
    """Equation (2): relevance checks and entries of the old and the new image of each update, per refresh."""
    if not load.per_refresh:
        return 0.0
    return 2 * (prices.relevance + load.qualified * prices.maintain) * load.per_refresh


def delay_scanned(load: Load, prices: Prices) -> float:
    """CsN: reading the base once."""
    return prices.scan * load.rows


def choose(load: Load, prices: Prices, *, prompt: bool = False) -> Choice:
    """Eager or deferred. `prompt` says that a quick answer to a refresh matters more than work at commits."""
    limits = (communication_limit(load.qualified, keyed=load.keyed), delay_limit(load.qualified, prices))
    name = "ln((2 − q)/(1 − q))" if load.keyed else "ln 2"
    sends, delays = (load.per_row < limit for limit in limits)
    reasons = (
        f"{load.per_row:.3g} updates of a row between refreshes are {_beside(sends)} {name} = {limits[0]:.3g}, "
        f"so the difference is {'smaller' if sends else 'no smaller'} than the view",
        f"they are {_beside(delays)} Cs/(2Cr + 2qCm) = {limits[1]:.3g}, "
        f"so maintaining delays {'less' if delays else 'no less'} than reading the base",
    )
    if sends == delays:
        return Choice(EAGER if sends else DEFERRED, reasons)
    if prompt:
        return Choice(EAGER, (*reasons, "a quick answer matters, and a difference table has it ready"))
    return _weighed(load, prices, reasons)


def _weighed(load: Load, prices: Prices, reasons: tuple[str, ...]) -> Choice:
    """One condition holds: messages and delay, both in seconds per refresh."""
    eager = messages(load) * prices.message + delay_maintained(load, prices)
    otherwise = messages_regenerated(load) * prices.message + delay_scanned(load, prices)
    seconds = f"messages and delay together take {eager:.3g} s with it and {otherwise:.3g} s without, per refresh"
    return Choice(EAGER if eager < otherwise else DEFERRED, (*reasons, seconds))


def _beside(below: bool) -> str:
    return "below" if below else "not below"


def messages_regenerated(load: Load) -> float:
    """qN: what a refresh by regeneration sends."""
    return load.qualified * load.rows


def communication_limit(qualified: float, *, keyed: bool) -> float:
    """The λ/(ΛN) below which a difference table sends less than regeneration: ln 2, or ln((2 − q)/(1 − q))."""
    if not keyed:
        return math.log(2)
    return math.inf if qualified >= 1 else math.log((2 - qualified) / (1 - qualified))


def delay_limit(qualified: float, prices: Prices) -> float:
    """The λ/(ΛN) below which a difference table delays less than a scan: Cs/(2Cr + 2qCm)."""
    price = 2 * prices.relevance + 2 * qualified * prices.maintain
    return prices.scan / price if price else math.inf

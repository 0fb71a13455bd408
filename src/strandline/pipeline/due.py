"""When a copy is due: at every run, once in each period of the calendar, or so long after the last refresh."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from strandline.dumps.calendar import PERIODS
from strandline.pipeline.settings import ReplicaOf


def is_due(replica: ReplicaOf, last: Mapping[str, Any] | None, now: float) -> bool:
    """Whether a copy shall be refreshed; `last` is what the journal says of its last good refresh, if anything.

    One whose last attempt failed is always due.
    """
    if last is None or last.get("error") or replica.every is None or last.get("at") is None:
        return True
    at = float(last.get("checked") or last["at"])
    if isinstance(replica.every, str):
        begin = PERIODS[replica.every](dt.datetime.fromtimestamp(now).astimezone())
        return at < begin.timestamp()
    return now - at >= replica.every

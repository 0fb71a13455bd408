"""The demo: a small shop from one night to the next, on Spark. It narrates each step with its figures."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes import Changes
from strandline.detect import Differential, diff
from strandline.engine.session import session
from strandline.errors import StrandlineError

Say = Callable[[str], None]

ROWS = 200_000
SEED = 1996
TOWNS = ("Aarhus", "Bergen", "Cork", "Dundee", "Esbjerg", "Falmouth")
STATES = ("open", "paid", "sent", "closed")


def demo(say: Say, folder: str | None = None) -> dict[str, Any]:
    """Runs the demo in a new folder, which it leaves behind, and gives the figures that it told."""
    home = Path(folder or tempfile.mkdtemp(prefix="strandline-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    say(f"A small shop, in {home}")
    spark = _timed(say, "Spark is up", session)
    monday, tuesday = home / "monday.parquet", home / "tuesday.parquet"
    _timed(say, f"Two nightly extracts of {ROWS:,} orders", lambda: _extracts(spark, monday, tuesday))
    changes = _compare(say, spark, monday, tuesday)
    _apply(say, spark, changes, monday, tuesday, home)
    figures = _next_night(say, spark, monday, tuesday, home)
    say(f"\nLook around in {home}:")
    say(f"  strandline diff {monday} {tuesday} --key id")
    say(f"  strandline show {home / 'tuesday.changes'}")
    return {"folder": str(home), **changes.summary().to_json(), **figures}


def _compare(say: Say, spark: Any, monday: Path, tuesday: Path) -> Differential:
    changes: Differential = _timed(
        say, "What changed since Monday?", lambda: diff(monday, tuesday, "id", runner="spark", session=spark)
    )
    found = changes.summary()
    say(f"    {found}.")
    say(f"    By {changes.run.algorithm}: {changes.run.why}.")
    touched = sorted((found.columns or {}).items(), key=lambda each: -each[1])[:3]
    say(f"    Most often: {', '.join(f'{name} ({count:,})' for name, count in touched if count)}.")
    say("    The same rows as a DataFrame:")
    for row in changes.to_spark(spark).where("_change = 'update'").orderBy("id").limit(3).collect():
        before = row["_before"].asDict()
        for name in row["_changed"]:
            say(f"      order {row['id']}: {name} {before[name]} → {row[name]}")
    return changes


def _apply(say: Say, spark: Any, changes: Differential, monday: Path, tuesday: Path, home: Path) -> None:
    saved = home / "tuesday.changes"
    changes.save(saved)
    size = sum(file.stat().st_size for file in saved.iterdir())
    say(f"Saved as {saved.name}: {size / 1e3:,.0f} kB; the extract has {tuesday.stat().st_size / 1e3:,.0f} kB.")
    loaded = Changes.load(saved)
    again = _timed(
        say, "Monday's extract and the saved changes give Tuesday's", lambda: _applied(loaded, monday, spark)
    )
    _must_be_the_same(diff(again, tuesday, "id", runner="spark", session=spark))
    back = _timed(say, "The inverse leads back to Monday", lambda: _applied(loaded.invert(), tuesday, spark))
    _must_be_the_same(diff(monday, back, "id", runner="spark", session=spark))


def _applied(changes: Changes, base: Path, spark: Any) -> Any:
    return changes.apply(base, runner="spark", session=spark)


def _next_night(say: Say, spark: Any, monday: Path, tuesday: Path, home: Path) -> dict[str, Any]:
    """Signatures of Monday alone, kept between runs, answer the same question."""
    state = home / "orders.state"
    diff(None, monday, "id", state=str(state), runner="spark", session=spark)
    size = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    found = _timed(
        say,
        f"Against Monday's signatures alone ({size / 1e3:,.0f} kB), without Monday's extract",
        lambda: diff(None, tuesday, "id", state=str(state), runner="spark", session=spark),
    )
    say(f"    {found.summary()}.")
    say(f"    The chance that an update was missed is {found.run.miss_probability:.1e}.")
    return {"state_bytes": size, "miss_probability": found.run.miss_probability}


def _must_be_the_same(found: Differential) -> None:
    if found.summary().changed:
        raise StrandlineError(f"the demo's own check failed: {found.summary()}", doing="applying changes")


def _extracts(spark: Any, monday: Path, tuesday: Path) -> None:
    """Monday's orders, and Tuesday's: some moved on, some came, some went."""
    chance = random.Random(SEED)
    old = [_order(number, chance) for number in range(1, ROWS + 1)]
    new = []
    for order in old:
        luck = chance.random()
        if luck < 0.005:
            continue
        if luck < 0.02:
            order = {**order, "state": STATES[min(STATES.index(order["state"]) + 1, 3)], "qty": order["qty"] + 1}
        new.append(order)
    new += [_order(number, chance) for number in range(ROWS + 1, ROWS + 1 + ROWS // 200)]
    for rows, path in ((old, monday), (new, tuesday)):
        frame = spark.createDataFrame(pa.Table.from_pylist(rows))
        pq.write_table(frame.orderBy("id").toArrow(), path, row_group_size=20_000)


def _order(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "id": number,
        "town": chance.choice(TOWNS),
        "state": chance.choice(STATES),
        "qty": chance.randint(1, 9),
        "price": round(chance.uniform(1, 200), 2),
        "note": f"order {number} of {chance.choice(TOWNS)}",
    }


def _timed(say: Say, title: str, work: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    result = work()
    say(f"{title} ({time.perf_counter() - started:.1f} s).")
    return result

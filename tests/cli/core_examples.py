"""Run by `test_examples.py` in a Python without the extras: each example of the commands' help, in a fresh small world.

    python core_examples.py FOLDER HIDDEN_PACKAGE ...  <  the examples, one for each line

prints what went wrong: an example that ended in trouble and named no extra, with what it said.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import os
import re
import shlex
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

sys.modules.update(dict.fromkeys(sys.argv[2:]))  # type: ignore[arg-type]

import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from strandline.cli import main  # noqa: E402

WORLD = """
create shop
load shop orders monday.parquet --key id
load shop items monday.parquet --key id
load shop staff staff.csv --key name
load shop stock stock.csv --key place,id
snapshot shop monday
load shop orders tuesday.parquet --mode overwrite
snapshot shop tuesday
diff sunday.parquet monday.parquet --key id --out monday.changes
diff monday.parquet tuesday.parquet --key id --out tuesday.changes
diff tuesday.parquet sunday.parquet --key id --out wednesday.changes
diff monday.parquet tuesday.parquet --key id --out topic.jsonl --layout debezium
"""
CUT = ["whatif new shop cut staff", "whatif update shop cut --where 'grade >= 9' --set 'salary=salary * 0.8'"]
VIEWS = [
    "view create shop cheap 'select id, name from orders where price < 10'",
    "view create shop totals 'select state, count(*) n from orders group by state'",
]
BEFORE = (
    (r"^whatif (?!new shop cut)|shop#cut|FROM cut", CUT),
    (r"^whatif (conflicts|.*--resolve)", ["load shop staff raised.csv --mode upsert"]),
    (r"^drop shop branch", ["branch shop idea"]),
    (r"^view (?!create)|^(replicate|refresh|replicas|forget) shop", VIEWS),
    (r"^(refresh|replicas|forget) shop", ["replicate shop cheap duckdb:///cheap.duckdb#cheap"]),
    (r"^(refresh|replicas) sqlite", ["replicate sqlite:///shop.db#orders duckdb:///cheap.duckdb#cheap"]),
    (r"^(restore|dumps) |^dump .*--level 1", ["dump shop backups"]),
    (r"^(status|plan) |^run .*--accept", ["run shop.toml"]),
)
"""What has to have happened before an example."""
TOMORROW = (dt.datetime.now() + dt.timedelta(days=1)).strftime("%Y-%m-%d %H:%M")
INSTEAD = {
    "SHOP": "shop",
    "snapshot shop monday": "snapshot shop friday",
    "load shop orders monday.parquet": "load shop more monday.parquet",
    "export shop orders orders": "export shop orders exported",
    "2026-10-05 12:00": TOMORROW,
    "s3://bucket/backups": "backups",
    " --watch 1m": "",
    " --watch --every 30m": "",
    "follower-5c0ffee5c0ffee00": "cheap",
}
"""What stands in the place of what is not here (another machine, another time, no end) or is here already."""


def make_files() -> None:
    more = {"name": "n", "price": 5.0, "state": "new"}
    rows: list[dict[str, Any]] = [{"id": 1000 + n, "shop": n % 2, "qty": n, **more} for n in range(20)]
    days = {"sunday": rows[1:], "monday": rows, "tuesday": [{**row, "qty": row["id"] % 3} for row in rows[2:]]}
    for day, table in days.items():
        pq.write_table(pa.Table.from_pylist(table), f"{day}.parquet")
        pa.csv.write_csv(pa.Table.from_pylist(table), f"{day}.csv")
    shutil.copy("monday.csv", "a.csv")
    shutil.copy("tuesday.csv", "b.csv")
    shutil.copy("tuesday.parquet", "orders.parquet")
    Path("staff.csv").write_text("name,grade,salary\nann,9,100.0\nbob,10,90.0\ncid,2,50.0\n")
    Path("raised.csv").write_text("name,grade,salary\nann,9,110.0\nbob,10,95.0\n")
    Path("newcomers.csv").write_text("name,grade,salary\neve,3,70.0\n")
    Path("stock.csv").write_text("place,id,n\noslo,7,1\nrome,7,2\n")
    for name in ("orders.delta", "orders_delta"):
        Path(name, "_delta_log").mkdir(parents=True)
    Path("shop.toml").write_text('store = "night"\n[sources.orders]\nfrom = "orders.parquet"\nkey = "id"\n')
    with contextlib.closing(sqlite3.connect("shop.db")) as database:
        database.execute("create table t (id integer primary key, n integer)")
        database.execute("create table orders (id integer primary key, price real)")
        database.execute("insert into orders values (1, 5), (2, 50)")
        database.commit()
    with duckdb.connect("shop.duckdb") as big:
        big.execute("create table big (id bigint primary key, n bigint)")


def run(words: str) -> tuple[int, str]:
    """One command in this process: its exit code and what it complained of; standard input is Monday's extract."""
    said = io.StringIO()
    os.dup2(os.open("monday.csv", os.O_RDONLY), 0)
    code = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main(shlex.split(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, said.getvalue()


def of_shell(example: str) -> str:
    """The words of the command itself, without the pipes and redirections around it."""
    inside = re.search(r"\$\((.*?)\)", example)
    line = re.sub(r"\s+(# .*|> \S+|\| jq .*)$", "", inside[1] if inside else example)
    words = line.partition("strandline ")[2]
    for here, there in INSTEAD.items():
        words = words.replace(here, there)
    return re.sub("^create shop", "create another", words)


def main_loop(folder: Path, examples: list[str]) -> None:
    world = folder / "world"
    world.mkdir()
    os.chdir(world)
    make_files()
    for words in WORLD.split("\n"):
        if words and run(words)[0] == 2:
            raise AssertionError(f"{words}: {run(words)[1]}")
    for number, example in enumerate(examples):
        place = shutil.copytree(world, folder / str(number))
        os.chdir(place)
        words = of_shell(example)
        for first in (one for pattern, before in BEFORE if re.search(pattern, words) for one in before):
            code, said = run(first)
            if code == 2:
                raise AssertionError(f"before {example}: {first}: {said}")
        code, said = run(words)
        if code not in (0, 1) and "pip install 'strandline[" not in said:
            print(f"{example}\n    {code} {said.strip()}")
        os.chdir(folder)
        shutil.rmtree(place)


main_loop(Path(sys.argv[1]), [line.strip() for line in sys.stdin if line.strip()])

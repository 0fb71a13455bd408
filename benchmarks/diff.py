"""The differential against its peers, in one run on one machine, as ratios.

    python benchmarks/diff.py                    20 M rows x 8 columns and 5 M x 60, each in three orders
    python benchmarks/diff.py --rows 2000000     smaller

Each contender runs in a process of its own: one warm-up, then `--repeat` timed runs, of which the best counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.extracts import Extracts, make
from benchmarks.measure import measure

Work = Callable[[], str]
SLOW = ("spark-extension", "datacompy")


def duckdb_join(old: str, new: str) -> Work:
    """DuckDB's full outer join, changed rows out as Arrow."""
    import duckdb

    names = [row[0] for row in duckdb.execute(f"describe select * from '{new}'").fetchall() if row[0] != "id"]
    differ = " or ".join(f'o."{name}" is distinct from n."{name}"' for name in names)
    both = ", ".join(f'o."{name}" as "old {name}", n."{name}"' for name in names)
    query = f"""select o.id as old_id, n.id, {both}
        from '{old}' o full outer join '{new}' n on o.id = n.id where o.id is null or n.id is null or {differ}"""

    def work() -> str:
        with duckdb.connect(config={"preserve_insertion_order": False}) as connection:
            return _answer(connection.sql(query).to_arrow_table())

    return work


def _answer(table: Any) -> str:
    inserted = table.column("old_id").null_count
    deleted = table.column("id").null_count
    return f"{inserted} inserted, {table.num_rows - inserted - deleted} updated, {deleted} deleted"


def reading(old: str, new: str) -> Work:
    """Merely reading both files with pyarrow."""
    import pyarrow.parquet as pq

    return lambda: f"{sum(pq.read_table(path).num_rows for path in (old, new))} rows"


def polars_join(old: str, new: str) -> Work:
    """Polars, streaming full join, changed rows out."""
    import polars as pl

    def work() -> str:
        left, right = pl.scan_parquet(old), pl.scan_parquet(new)
        names = [name for name in right.collect_schema().names() if name != "id"]
        joined = left.join(right, on="id", how="full", suffix="_new")
        differ = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_new")) for name in names)
        changed = joined.filter(pl.col("id").is_null() | pl.col("id_new").is_null() | differ).collect(
            engine="streaming"
        )
        inserted, deleted = changed["id"].null_count(), changed["id_new"].null_count()
        return f"{inserted} inserted, {len(changed) - inserted - deleted} updated, {deleted} deleted"

    return work


def spark_extension(old: str, new: str) -> Work:
    """spark-extension's `diff` on Spark, counted by kind."""
    import gresearch.spark
    from gresearch.spark.diff import Differ, DiffOptions
    from pyspark.sql import SparkSession

    jars = ",".join(str(jar) for jar in Path(gresearch.spark.__file__).parents[2].rglob("spark-extension*.jar"))
    spark = SparkSession.builder.master("local[*]").config("spark.jars", jars).config("spark.driver.memory", "8g")
    session = spark.config("spark.log.level", "OFF").config("spark.ui.enabled", "false").getOrCreate()
    options = DiffOptions()

    def work() -> str:
        found = Differ(options).diff(session.read.parquet(old), session.read.parquet(new), "id")
        changed = found.where("diff <> 'N'")
        counts = {row["diff"]: row["count"] for row in changed.groupBy("diff").count().collect()}
        return f"{counts.get('I', 0)} inserted, {counts.get('C', 0)} updated, {counts.get('D', 0)} deleted"

    return work


def datacompy_spark(old: str, new: str) -> Work:
    """datacompy's comparison on Spark."""
    from datacompy import SparkSQLCompare
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").config("spark.driver.memory", "8g").getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    def work() -> str:
        compare = SparkSQLCompare(session, session.read.parquet(old), session.read.parquet(new), join_columns="id")
        deleted, inserted = compare.df1_unq_rows.count(), compare.df2_unq_rows.count()
        return f"{inserted} inserted, {compare.all_mismatch().count()} updated, {deleted} deleted"

    return work


def strandline(algorithm: str, runner: str) -> Callable[[str, str], Work]:
    def prepared(old: str, new: str) -> Work:
        import strandline as sl

        session = sl.session() if runner == "spark" else None
        folder = tempfile.mkdtemp(prefix="strandline-bench-")
        state = f"{folder}/old.state"
        if algorithm in ("kb", "kbp"):
            sl.diff(None, old, key="id", state=state, algorithm=algorithm, session=session, runner=runner)

        def work() -> str:
            if algorithm in ("kb", "kbp"):
                changes = sl.diff(
                    state,
                    new,
                    key="id",
                    save_state=f"{folder}/new.state",
                    algorithm=algorithm,
                    session=session,
                    runner=runner,
                )
            else:
                changes = sl.diff(old, new, key="id", algorithm=algorithm, session=session, runner=runner)
            found = changes.summary()
            changes.to_arrow()
            return f"{found.inserted} inserted, {found.updated} updated, {found.deleted} deleted"

        return work

    return prepared


CONTENDERS: dict[str, Callable[[str, str], Work]] = {
    "DuckDB full outer join": duckdb_join,
    "reading both (pyarrow)": reading,
    "strandline auto, Spark": strandline("auto", "spark"),
    "strandline kb state, Spark": strandline("kb", "spark"),
    "strandline kb state, inline": strandline("kb", "inline"),
    "strandline kbp state, Spark": strandline("kbp", "spark"),
    "strandline window, Spark": strandline("window", "spark"),
    "strandline auto, inline": strandline("auto", "inline"),
    "Polars streaming": polars_join,
    "spark-extension": spark_extension,
    "datacompy": datacompy_spark,
}


def run_one(contender: str, old: str, new: str, repeat: int) -> None:
    result = measure(CONTENDERS[contender](old, new), repeat)
    print("RESULT " + json.dumps(vars(result)), flush=True)


def compare(extracts: Extracts, folder: Path, repeat: int, chosen: list[str]) -> None:
    old, new = make(extracts, folder)
    print(f"\n{extracts.rows:,} rows × {extracts.columns} columns, {extracts.changed:.0%} changed, {extracts.name}")
    print(f"{'':32}{'seconds':>16}{'× DuckDB':>10}{'× reading':>11}{'peak MB':>9}   answer")
    base: dict[str, float] = {}
    for contender in chosen:
        again = 1 if contender in SLOW else repeat
        command = [sys.executable, "-m", "benchmarks.diff", "--contender", contender, "--files", old, new]
        done = subprocess.run([*command, "--repeat", str(again)], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not lines:
            print(f"{contender:32}failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:90]}")
            continue
        found = json.loads(lines[-1][7:])
        base[contender] = found["best"]
        duck, read = base.get("DuckDB full outer join"), base.get("reading both (pyarrow)")
        seconds = f"{found['best']:.2f} – {found['worst']:.2f}"
        ratios = "".join(
            f"{found['best'] / other:>{width}.2f}" if other else " " * width
            for other, width in ((duck, 10), (read, 11))
        )
        print(f"{contender:32}{seconds:>16}{ratios}{found['memory'] / 1e6:>9.0f}   {found['answer']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--wide-rows", type=int, default=5_000_000)
    parser.add_argument("--changed", type=float, nargs="*", default=[0.01, 0.20])
    parser.add_argument("--orders", nargs="*", default=["clustered", "nearly", "shuffled"])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="contenders whose names contain one of these words")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-bench")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        old, new = arguments.files
        return run_one(arguments.contender, old, new, arguments.repeat)
    chosen = [name for name in CONTENDERS if not arguments.only or any(word in name for word in arguments.only)]
    for columns, rows in ((8, arguments.rows), (60, arguments.wide_rows)):
        for changed in arguments.changed:
            for order in arguments.orders:
                if rows:
                    compare(
                        Extracts(rows, columns, changed, order),
                        arguments.folder,
                        arguments.repeat,
                        chosen,
                    )
    return None


if __name__ == "__main__":
    main()

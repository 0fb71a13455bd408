"""Who is told of a run, by what; what Prometheus reads; and the pages of runs that were stopped."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.cli.command import Command
from tests.pipeline.shop import Shop, orders

from strandline.errors import GuardTripped, StrandlineError

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
[sources.orders.guards]
deleted = "50%"
"""


class Server(HTTPServer):
    """Keeps what is posted to it."""

    got: list[tuple[str, dict[str, Any]]]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Server)
        self.server.got.append((self.path, json.loads(body)))
        if self.path == "/garbled":
            self.wfile.write(b"what?\r\n\r\n")
            return
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as serving:
        serving.got = []
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def stopped(shop: Shop) -> None:
    shop.extract("orders.parquet", orders(1))
    with pytest.raises(GuardTripped):
        shop.run()


def test_a_webhook_gets_the_run_and_a_command_its_json(shop: Shop, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    shop.environment = {"HOOK": "hunter2secret"}
    shop.write(f'{FILE}[notify]\nwebhook = "{url}/${{HOOK}}"\ncommand = "tee told.json"\non = "always"')
    shop.extract("orders.parquet", orders(1, 2, 3))
    assert shop.run().untold == ""
    stopped(shop)
    (path, first), (_, second) = server.got
    assert (path, first["outcome"], first["sources"]["orders"]["inserted"]) == ("/hunter2secret", "step", 3)
    assert (second["outcome"], second["kind"]) == ("stopped", "GuardTripped")
    assert json.loads((shop.folder / "told.json").read_text()) == second
    assert "hunter2secret" not in (shop.folder / "shop.work/runs.jsonl").read_text()


def test_only_trouble_is_told_by_default(shop: Shop, server: Server) -> None:
    shop.write(f'{FILE}[notify]\nwebhook = "http://127.0.0.1:{server.server_port}/x"')
    shop.extract("orders.parquet", orders(1, 2, 3))
    shop.run()
    shop.run()
    assert server.got == []
    stopped(shop)
    assert [told["outcome"] for _, told in server.got] == ["stopped"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('webhook = "{url}/broken"', "the webhook answered 500 Internal Server Error"),
        ('webhook = "http://127.0.0.1:1/"', "the webhook was not reached: Connection refused"),
        ('webhook = "{url}/garbled"', "the webhook was not reached"),
        ('webhook = "{url}/${{HOOK}}"', "the address of the webhook holds a blank or a control character"),
        ('openlineage = "{url}/${{HOOK}}"', "the address of the lineage service holds a blank"),
        ('openlineage = "a\\u0000b"', "lineage was not written"),
        ('command = ["tee", "a\\u0000b"]', "tee did not run"),
        ('webhook = "file:///etc/hosts"', "no address that begins with http"),
        ('webhook = "http://host/${{MISSING}}"', "MISSING"),
        ('command = ["false"]', "false ended with 1"),
        ('command = "no-such-command-here"', "no-such-command-here did not run: No such file or directory"),
        ('openlineage = "no/such/folder/x.jsonl"', "lineage was not written: No such file or directory"),
    ],
)
def test_what_cant_be_told_stops_no_run_and_is_said(shop: Shop, server: Server, told: str, said: str) -> None:
    shop.environment = {"HOOK": "hunter2\nsecret"}
    shop.write(f'{FILE}[notify]\non = "always"\n{told.format(url=f"http://127.0.0.1:{server.server_port}")}')
    shop.extract("orders.parquet", orders(1, 2, 3))
    result = shop.run()
    assert result.step is not None
    assert said in result.untold
    assert said in shop.pipeline().history(1)[0]["untold"]
    assert "hunter2" not in result.untold


def test_who_can_be_told_is_told_where_another_is_not(shop: Shop) -> None:
    ways = 'webhook = "http://host/${MISSING}"\ncommand = "tee told.json"\nopenlineage = "lineage.jsonl"'
    shop.write(f'{FILE}[notify]\non = "always"\n{ways}')
    shop.extract("orders.parquet", orders(1, 2, 3))
    assert "MISSING" in shop.run().untold
    assert json.loads((shop.folder / "told.json").read_text())["outcome"] == "step"
    assert (shop.folder / "lineage.jsonl").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError()], ids=repr)
def test_whatever_ends_a_run_is_told(shop: Shop, error: Exception) -> None:
    shop.write(f'{FILE}[notify]\ncommand = "tee told.json"\nopenlineage = "lineage.jsonl"')
    shop.extract("orders.parquet", orders(1, 2, 3))

    def stop(point: str) -> None:
        raise error

    with pytest.raises(type(error)):
        shop.run(watch=stop)
    told = json.loads((shop.folder / "told.json").read_text())
    assert (told["outcome"], told["kind"], told["error"]) == (
        "failed",
        type(error).__name__,
        str(error) or "RuntimeError",
    )
    assert shop.pipeline().history(1)[0]["error"] == told["error"]


def test_a_value_that_looks_like_a_number_leaves_the_json_what_it_is(shop: Shop) -> None:
    shop.environment = {"DAY": "100", "PART": 'o"é'}
    folder = 'from = "${DAY}/${PART}/orders.parquet"'
    shop.write(FILE.replace('from = "orders.parquet"', folder) + '[notify]\non = "always"\ncommand = "tee told.json"')
    shop.extract('100/o"é/orders.parquet', orders(*range(100)))
    shop.run()
    told = json.loads((shop.folder / "told.json").read_text())
    assert told["sources"]["orders"]["inserted"] == 100
    assert 'o"é' not in json.dumps(told, ensure_ascii=False)


def test_lineage_has_no_password(shop: Shop) -> None:
    plain = 'from = "postgresql://me:hunter2secret@127.0.0.1:1/shop#orders"'
    shop.write(FILE.replace('from = "orders.parquet"', plain) + '[notify]\nopenlineage = "lineage.jsonl"')
    with pytest.raises(StrandlineError):
        shop.run()
    (event,) = map(json.loads, (shop.folder / "lineage.jsonl").read_text().splitlines())
    assert [one["name"] for one in event["inputs"]] == ["postgresql://me@127.0.0.1:1/shop#orders"]


def test_who_is_not_told_of_a_stopped_run_is_said_by_the_run_its_status_and_the_index(
    shop: Shop, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write(f'{FILE}[notify]\ncommand = "false"\n')
    shop.extract("orders.parquet", orders(1, 2, 3))
    shop.run()
    stopped(shop)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "Not told: false ended with 1"
    ]
    said = Command(capsys)("status", str(shop.folder / "shop.toml")).out
    assert "Not told: false ended with 1." in " ".join(said.split())
    assert "Not told: false ended with 1." in (shop.folder / "shop.work" / "reports" / "index.html").read_text()


def test_lineage_has_the_sources_and_tables_of_each_step(shop: Shop) -> None:
    shop.write(f'{FILE}[notify]\nopenlineage = "lineage.jsonl"')
    shop.extract("orders.parquet", orders(1, 2, 3))
    shop.run()
    shop.run()
    shop.now += 60
    stopped(shop)
    events = [json.loads(line) for line in (shop.folder / "lineage.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["COMPLETE", "FAIL"]
    assert len({event["run"]["runId"] for event in events}) == 2
    assert events[0]["job"] == {"namespace": "strandline", "name": "shop", "facets": {}}
    assert [one["name"] for one in events[0]["inputs"]] == ["orders.parquet"]
    assert events[0]["outputs"][0] == {"namespace": "shop.store", "name": "orders", "facets": {}}


def test_a_run_without_a_step_has_no_event_and_a_copy_that_never_arrived_has_a_gauge(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop.folder)
    away = '[replicas.away]\nof = "orders"\nto = "postgresql://me@127.0.0.1:1/none#t"\n'
    shop.write(f'{FILE}{away}[notify]\nopenlineage = "lineage.jsonl"')
    shop.extract("orders.parquet", orders(1, 2, 3))
    assert [shop.run().outcome for _ in range(2)] == ["behind", "behind"]
    events = [json.loads(line) for line in (shop.folder / "lineage.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["COMPLETE"]
    gauges = Command(capsys)("status", "shop.toml", "--prometheus").out.splitlines()
    assert 'strandline_copy_lag_steps{pipeline="shop",copy="away"} 1' in gauges
    assert 'strandline_copy_ok{pipeline="shop",copy="away"} 0' in gauges


def test_prometheus_reads_how_the_pipeline_stands(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop.folder)
    command = Command(capsys)
    shop.write(FILE)
    shop.extract("orders.parquet", orders(1, 2, 3))
    shop.run()
    stopped(shop)
    text = command("status", "shop.toml", "--prometheus").out
    gauges = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert gauges['strandline_table_rows{pipeline="shop",table="orders"}'] == "3"
    assert gauges['strandline_last_run_ok{pipeline="shop"}'] == "0"
    assert gauges['strandline_last_step{pipeline="shop"}'] == "1"
    assert all(re.fullmatch(r"strandline_\w+\{[^}]*\}", name) for name in gauges)
    assert all(text.count(f"# TYPE {name.partition('{')[0]} gauge") == 1 for name in gauges)
    assert command("status", "shop.toml", "--prometheus", "--json").code == 2


def test_a_stopped_run_has_a_page_and_the_index_leads_to_all(shop: Shop) -> None:
    shop.write(FILE)
    shop.extract("orders.parquet", orders(1, 2, 3))
    shop.run()
    shop.now += 60
    shop.extract("orders.parquet", orders(1, 2, 3, price=2.0))
    shop.run()
    reports = shop.folder / "shop.work" / "reports"
    assert "step 2" in (reports / "latest.html").read_text("utf-8")
    assert "3 updates" in (reports / "step-0002-orders.html").read_text("utf-8")
    shop.now += 60
    stopped(shop)
    latest = (reports / "latest.html").read_text("utf-8")
    assert "2 of 3 rows were deleted" in latest
    assert 'href="step-0002.html"' in latest
    index = (reports / "index.html").read_text("utf-8")
    links = re.findall(r'href="([^"]+)"', index)
    assert links == [f"stopped-{int(shop.now)}.html", "step-0002.html", "step-0002-orders.html", "step-0001.html"]
    assert '>stopped by a guard</a><div class="why">guarding the source' in index
    assert latest.count("Nothing was applied.") == 1
    assert all((reports / link).exists() for link in links)
    shop.now += 60
    shop.extract("orders.parquet", orders(1, 2, 3, price=3.0))
    shop.run()
    assert "step 3" in (reports / "latest.html").read_text("utf-8")

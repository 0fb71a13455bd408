"""What others are told of a run: a webhook or a command gets its JSON, a lineage service an OpenLineage event, and
Prometheus reads how the pipeline stands.

Telling never stops a run: what went wrong with it is given back as words, for the run to say.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from typing import Any

from strandline._version import __version__
from strandline.errors import StrandlineError, without_passwords
from strandline.pipeline.places import Secrets, located
from strandline.pipeline.settings import NotifySettings, PipelineSettings
from strandline.pipeline.status import PipelineStatus

SECONDS = 30
"""How long a webhook may take; a command may take ten times as long."""
_LINEAGE = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FAILED = ("stopped", "failed")
TROUBLE = (*FAILED, "behind")


def tell(settings: PipelineSettings, secrets: Secrets, record: Mapping[str, Any]) -> str:
    """Tells of a run as `[notify]` says; what could not be told, in words, or nothing."""
    wanted = settings.notify
    if wanted.on == "trouble" and record["outcome"] not in TROUBLE:
        wanted = NotifySettings(openlineage=wanted.openlineage)
    told = [_told(secrets, way) for way in _ways(settings, wanted, secrets, record)]
    return "; ".join(secrets.scrub(each) for each in told if each)


def _ways(
    settings: PipelineSettings, wanted: NotifySettings, secrets: Secrets, record: Mapping[str, Any]
) -> Iterator[Callable[[], str]]:
    """Each way to tell of the run, by itself: one that fails is in no other's way."""
    body = json.dumps(_scrubbed(record, secrets), default=str).encode()
    if webhook := wanted.webhook:
        yield lambda: _posted(secrets.fill(webhook, "notifying"), body, "the webhook")
    if wanted.command:
        yield lambda: _commanded(wanted.command, body, settings.folder)
    lineage = wanted.openlineage
    if lineage and (record["outcome"] in FAILED or record["step"] or record["resumed"]):
        event = json.dumps(lineage_event(settings, record)).encode()
        yield lambda: _lined_up(secrets.fill(lineage, "telling lineage"), event, settings.folder)


def _told(secrets: Secrets, way: Callable[[], str]) -> str:
    try:
        return way()
    except StrandlineError as error:  # a variable of its address that is not set
        return str(error)


def _scrubbed(value: Any, secrets: Secrets) -> Any:
    """A record without what was filled in, text by text: in its JSON a number may look like a value."""
    if isinstance(value, str):
        return secrets.scrub(value)
    if isinstance(value, Mapping):
        return {key: _scrubbed(each, secrets) for key, each in value.items()}
    return [_scrubbed(each, secrets) for each in value] if isinstance(value, list | tuple) else value


def lineage_event(settings: PipelineSettings, record: Mapping[str, Any]) -> dict[str, Any]:
    """The OpenLineage event of a run: its sources are inputs, its tables outputs; addresses are those of the file."""
    kind = "FAIL" if record["outcome"] in FAILED else "COMPLETE"
    sources = [source for source in settings.sources if kind == "FAIL" or source.name in record.get("sources", {})]
    return {
        "eventType": kind,
        "eventTime": dt.datetime.now(dt.UTC).isoformat(),
        "producer": f"urn:strandline:{__version__}",
        "schemaURL": _LINEAGE,
        "run": {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{settings.name} {record['started']}")), "facets": {}},
        "job": {"namespace": "strandline", "name": settings.name, "facets": {}},
        "inputs": [
            {"namespace": "strandline", "name": without_passwords(source.location), "facets": {}} for source in sources
        ],
        "outputs": [
            {"namespace": without_passwords(settings.store), "name": source.table, "facets": {}} for source in sources
        ],
    }


def prometheus_text(status: PipelineStatus, runs: list[dict[str, Any]]) -> str:
    """How a pipeline stands, as Prometheus reads it (the text format, for the node exporter's folder or a push)."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in _gauges(status, runs):
        marks = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        lines.setdefault(name, []).append(f"{name}{{{marks}}} {value}")
    return "".join(f"# TYPE {name} gauge\n" + "".join(f"{line}\n" for line in each) for name, each in lines.items())


def _gauges(status: PipelineStatus, runs: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    of = {"pipeline": status.pipeline}
    ended = [run for run in runs if run.get("kind") != "Running"]
    if ended:
        last = ended[-1]
        yield "strandline_last_run_timestamp_seconds", of, last["started"]
        yield "strandline_last_run_ok", of, int(not last.get("error") and not last.get("behind"))
        yield from [("strandline_last_run_seconds", of, last["seconds"])] if last["seconds"] is not None else []
    if status.steps:
        yield "strandline_last_step", of, status.steps[-1].number
        yield "strandline_last_step_timestamp_seconds", of, status.steps[-1].started
    for source in status.sources:
        if source["age"] is not None:
            yield "strandline_extract_age_seconds", {**of, "source": source["name"]}, round(source["age"], 3)
    for table in status.tables:
        yield "strandline_table_rows", {**of, "table": table["name"]}, table["rows"]
    for table in status.tables:
        yield "strandline_table_bytes", {**of, "table": table["name"]}, table["bytes"]
    for copy in status.replicas:
        if copy["lag"] is not None:
            yield "strandline_copy_lag_steps", {**of, "copy": copy["name"]}, copy["lag"]
    for copy in status.replicas:
        yield "strandline_copy_ok", {**of, "copy": copy["name"]}, int(not copy["error"])
    for dump in status.dumps:
        if dump["age"] is not None:
            yield "strandline_dump_age_seconds", {**of, "dumps": dump["name"]}, round(dump["age"], 3)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _posted(url: str, body: bytes, what: str) -> str:
    if not url.startswith(("http://", "https://")):
        return f"{what} has no address that begins with http:// or https://"
    if any(character <= " " or character == "\x7f" for character in url):
        return f"the address of {what} holds a blank or a control character, such as the end of a line"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"{what} answered {error.code} {error.reason}"
    except (OSError, ValueError, HTTPException) as error:
        return f"{what} was not reached: {_in_words(getattr(error, 'reason', error))}"


def _commanded(command: tuple[str, ...], body: bytes, folder: str) -> str:
    try:
        ran = subprocess.run(command, input=body, capture_output=True, timeout=10 * SECONDS, cwd=folder, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} did not run: {_in_words(error)}"
    lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{command[0]} ended with {ran.returncode}{f': {lines[-1]}' if lines else ''}" if ran.returncode else ""


def _lined_up(place: str, event: bytes, folder: str) -> str:
    if "://" in place:
        return _posted(place, event, "the lineage service")
    try:
        with open(os.path.join(folder, located(place, folder)), "ab") as file:
            file.write(event + b"\n")
    except (OSError, ValueError) as error:
        return f"lineage was not written: {_in_words(error)}"
    return ""


def _in_words(error: Exception | str) -> str:
    """Why, without Python's numbers and brackets around the words of the system."""
    return str(getattr(error, "strerror", None) or error)

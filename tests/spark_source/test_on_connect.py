"""The data sources over Connect: a real server on loopback, whose Python lacks the package."""

from __future__ import annotations

from pathlib import Path

import servers


def test_stores_are_read_and_written_over_connect(connect: servers.Server, tmp_path: Path) -> None:
    connect.run(Path(__file__).with_name("connect_driver.py"), tmp_path)

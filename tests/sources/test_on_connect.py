"""The data sources over Connect: a real server on loopback, whose Python lacks the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import servers


@pytest.mark.xdist_group("spark")
def test_stores_are_read_and_written_over_connect(tmp_path: Path) -> None:
    driver = Path(__file__).with_name("connect_driver.py")
    with servers.connect_server(tmp_path) as (master, environment):
        assert servers.run_driver(driver, master, environment, tmp_path).splitlines()[-1] == "fine"

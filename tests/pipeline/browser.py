"""A real browser, headless: what it makes of a page, and what it measures on it."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
MEASURE = """<script>
const soft = getComputedStyle(document.querySelector('.note')).color, body = getComputedStyle(document.body);
document.body.dataset.measured = JSON.stringify({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  tiles: [...document.querySelectorAll('.tile b')].map(e => e.innerText),
  bars: [...document.querySelectorAll('.versus .track i')].map(e => e.getBoundingClientRect().width),
  dots: document.querySelectorAll('.tree .snapshot').length,
  trends: [...document.querySelectorAll('.trend')].map(e => e.querySelectorAll('rect.last').length),
  colours: [body.color, body.backgroundColor, soft],
  hidden: [...document.querySelectorAll('h1, h2, .tile, svg')].filter(e => !e.getBoundingClientRect().height).length,
  requests: performance.getEntriesByType('resource').length,
});
</script>"""


@cache
def browser() -> str:
    """The browser's path. The tests need one: `tools/ensure-browser` finds or installs it."""
    for name in (os.environ.get("STRANDLINE_BROWSER", ""), *NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise AssertionError("no Chromium or Chrome: run tools/ensure-browser")


def measured(page: Path, folder: Path, *, width: int = 1000, dark: bool = False) -> dict[str, Any]:
    """What the browser lays out: the page is opened with a script that measures it and writes down what it found."""
    copy = folder / "measured.html"
    copy.write_text(page.read_text("utf-8").replace("</body>", f"{MEASURE}</body>"), "utf-8")
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    command += [f"--user-data-dir={folder}/profile", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    ran = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r'data-measured="([^"]*)"', ran.stdout)
    assert found, ran.stdout[-500:] + ran.stderr[-500:]
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG has it, from 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

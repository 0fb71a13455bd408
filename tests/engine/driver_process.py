"""The process that drives a Spark server for the tests: runs their scripts one after the other on one session.

Each line of standard input is a JSON object with a script, whose `main` takes a folder, the folder, and whether that is
the spool; each line of standard output is the answer, with what `main` gave or with how it failed.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any


def run(script: str, folder: str, *, spool: bool) -> dict[str, Any]:
    os.environ.pop("STRANDLINE_SPOOL", None)
    if spool:
        os.environ["STRANDLINE_SPOOL"] = folder
    os.chdir(folder)
    try:
        return {"told": runpy.run_path(script)["main"](Path(folder))}
    except BaseException:
        return {"failed": traceback.format_exc()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what scripts print is not an answer
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

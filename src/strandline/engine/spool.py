"""The spool: where attempts leave their results, and how it goes away again.

A spool is a folder on storage that the driver and every worker see. On one machine that is the temporary folder; on
a cluster it is the shared folder named by `STRANDLINE_SPOOL`. A spool lives as long as something made from it is
alive (a change set reads its rows from there) and is removed with the last of them, or at exit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from strandline.errors import InputError

SPOOL_VARIABLE = "STRANDLINE_SPOOL"


class Spool:
    """One folder, removed when closed, collected, or when Python exits."""

    def __init__(self, parent: str | None = None) -> None:
        root = parent or os.environ.get(SPOOL_VARIABLE) or tempfile.gettempdir()
        try:
            os.makedirs(root, exist_ok=True)
            self.path = tempfile.mkdtemp(prefix="strandline-", dir=root)
        except OSError as error:
            raise InputError(
                f"the folder for intermediate results can't be made: {error}",
                doing=f"making a spool under {root}",
                hint=f"Set {SPOOL_VARIABLE} to a folder that this machine and every Spark worker can write",
            ) from error
        os.chmod(self.path, 0o700)
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def close(self) -> None:
        self._finalizer()

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

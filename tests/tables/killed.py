"""The process that is killed: threads that move money, write a log, take and drop snapshots, make and drop branches.

    python -m tests.tables.killed

A line "PATH TRIAL ACKS" on standard input starts one, whose number is answered; an empty line ends. Every trial is a
fork of this process, which has everything imported and no threads: so 300 of them take minutes and not an hour. What
was committed is written to the file ACKS afterwards, one line each.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import traceback
from contextlib import suppress

from strandline.errors import Conflict, InUse
from strandline.store import Store, open

THREADS = 4
ACCOUNTS = 24


def work(store: Store, trial: int, thread: int, acks: int) -> None:
    """Until killed."""
    chance = random.Random(1000 * trial + thread)
    for turn in range(10**6):
        kind = chance.choice(["move", "move", "log", "log", "snapshot", "branch"])
        if kind == "move":
            one, other = chance.sample(range(ACCOUNTS), 2)
            store.autocommit(lambda tx, one=one, other=other: move(tx, one, other))  # type: ignore[misc]
        elif kind == "log":
            number = trial * 10**6 + thread * 10**5 + turn
            store.table("log").insert([{"id": number}])
            os.write(acks, f"{number}\n".encode())
        elif kind == "snapshot":
            store.snapshot(f"s{trial}.{thread}.{turn}")
            if turn % 3:
                with suppress(InUse):  # a branch of another thread stands on the same state
                    store.drop_snapshot(f"s{trial}.{thread}.{turn}")
        else:
            branch = store.branch(f"b{trial}.{thread}.{turn}")
            branch.autocommit(lambda tx: move(tx, 0, 1))
            if turn % 3:
                store.drop_branch(branch.name)


def move(tx, one: int, other: int) -> None:  # type: ignore[no-untyped-def]
    for key, amount in ((one, -7), (other, 7)):
        tx.update("accounts", where="id = :k", set={"balance": "balance + :a"}, params={"k": key, "a": amount})


def run(path: str, trial: int, acks: int) -> None:
    store = open(path)

    def guarded(thread: int) -> None:
        while True:
            try:
                work(store, trial, thread, acks)
            except Conflict:
                continue
            except BaseException:
                os.write(acks, f"error {traceback.format_exc()!r}\n".encode())
                return

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    for line in sys.stdin:
        if not line.strip():
            return
        path, trial, acks = line.split()
        child = os.fork()
        if child == 0:
            run(path, int(trial), os.open(acks, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

"""The process that is killed: threads that move money, write a log, take and drop snapshots, make and drop branches.
Its main thread does the same, forks children now and then, and is interrupted from outside.

    python -m tests.tables.killed

A line "PATH TRIAL ACKS" on standard input starts one, whose number is answered; an empty line ends. Every trial is a
fork of this process, which has everything imported and no threads: so 300 of them take minutes and not an hour. What
was committed is written to the file ACKS afterwards, one line each; so are "interrupt" and "fork" when one is over.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from strandline.errors import Cancelled, Conflict, InUse, StoreError, Unanswered
from strandline.store import Store, open

THREADS = 4
MAIN = THREADS
"""The number of the main thread, which is one more."""
ACCOUNTS = 24


@dataclass
class Worker:
    """One thread of the process."""

    store: Store
    path: str
    trial: int
    thread: int
    acks: int
    turns: Iterator[int] = field(default_factory=itertools.count)

    def run(self) -> None:
        """Until killed. An interrupt ends one turn, and no more."""
        chance = random.Random(1000 * self.trial + self.thread)
        for turn in self.turns:
            kinds = ["move", "move", "log", "log", "snapshot", "branch"] + ["fork"] * (3 * (self.thread == MAIN))
            try:
                getattr(self, chance.choice(kinds))(chance, turn)
            except Conflict:
                continue
            except (KeyboardInterrupt, Cancelled):
                os.write(self.acks, b"interrupt\n")
            except Unanswered:  # the thread that led the commit was interrupted: it may stand, and is not acknowledged
                os.write(self.acks, b"unanswered\n")
            except BaseException:
                os.write(self.acks, f"error {traceback.format_exc()!r}\n".encode())
                return

    def name(self, turn: int) -> str:
        return f"{self.trial}.{self.thread}.{turn}"

    def move(self, chance: random.Random, turn: int) -> None:
        one, other = chance.sample(range(ACCOUNTS), 2)
        self.store.autocommit(lambda tx: move(tx, one, other))

    def log(self, chance: random.Random, turn: int) -> None:
        number = self.trial * 10**6 + self.thread * 10**5 + turn
        self.store.table("log").insert([{"id": number}])
        os.write(self.acks, f"{number}\n".encode())

    def snapshot(self, chance: random.Random, turn: int) -> None:
        self.store.snapshot(f"s{self.name(turn)}")
        if turn % 3:
            with suppress(InUse):  # a branch of another thread stands on the same state
                self.store.drop_snapshot(f"s{self.name(turn)}")

    def branch(self, chance: random.Random, turn: int) -> None:
        branch = self.store.branch(f"b{self.name(turn)}")
        branch.autocommit(lambda tx: move(tx, 0, 1))
        if turn % 3:
            self.store.drop_branch(branch.name)

    def fork(self, chance: random.Random, turn: int) -> None:
        """A child may not use the store of its parent; it opens the store itself and writes."""
        child = fork_undisturbed()
        if child == 0:
            self.be_child(turn)
        for _ in range(400):
            if os.waitpid(child, os.WNOHANG)[0]:
                os.write(self.acks, b"fork\n")
                return
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.write(self.acks, b"fork killed\n")

    def be_child(self, turn: int) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            try:
                self.store.table("log").insert([{"id": -1}])
                os.write(self.acks, b"error a forked child wrote by its parent's store\n")
            except StoreError:
                pass
            with open(self.path) as own:
                Worker(own, self.path, self.trial, MAIN + 1, self.acks).log(random.Random(turn), turn)
        except Conflict:
            pass
        except BaseException:
            os.write(self.acks, f"error in a child {traceback.format_exc()!r}\n".encode())
        os._exit(0)


def fork_undisturbed() -> int:
    """What Python itself does around a fork is no place for an interrupt: it leaves the lock of `logging` taken."""
    pressed: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    child = os.fork()
    signal.signal(signal.SIGINT, former)
    if child and pressed:
        signal.raise_signal(signal.SIGINT)
    return child


def move(tx, one: int, other: int) -> None:  # type: ignore[no-untyped-def]
    for key, amount in ((one, -7), (other, 7)):
        tx.update("accounts", where="id = :k", set={"balance": "balance + :a"}, params={"k": key, "a": amount})


def run(path: str, trial: int, acks: int) -> None:
    store = open(path)
    workers = [Worker(store, path, trial, number, acks) for number in range(THREADS + 1)]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # they are all there before the first interrupt is
    for worker in workers[:MAIN]:
        threading.Thread(target=worker.run).start()
    while True:
        with suppress(KeyboardInterrupt):  # between two turns
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            workers[MAIN].run()
            return


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

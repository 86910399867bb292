"""Tasks that tests give to engines; workers import them by this name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Lock

import numpy as np

from veil.engine import task_threads
from veil.errors import InputError, Remedy


def square(item: int) -> int:
    """The square of a number."""
    return item * item


def slow_square(item: tuple[int, float]) -> int:
    """The square of a number, after a while."""
    time.sleep(item[1])
    return item[0] ** 2


def logged(item: tuple[int, str]) -> int:
    """The number, which is also appended to a file: a line for each call."""
    with Path(item[1]).open("a") as file:
        file.write(f"{item[0]}\n")
    return item[0]


def refuse_three(item: int) -> int:
    """The number, unless it is 3."""
    if item == 3:
        raise ValueError("three is refused")
    return item


class Awkward(Exception):
    """An error that can be pickled and not be read again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def awkward(item: int) -> int:
    """Raises an error that cannot travel."""
    raise Awkward(item, 2)


def advise(item: int) -> int:
    """Raises an error of veil with facts and a remedy; that of number 2 holds a fact that cannot travel."""
    facts = {"number": item, **({"lock": Lock()} if item == 2 else {})}
    raise InputError("it is too small", facts=facts, remedy=Remedy("raise", "advise.item", "3"))


def advise_here(item: int) -> int:
    """Raises an error whose class no other process can find."""

    class Here(InputError):
        pass

    raise Here("it is too small", facts={"number": item}, remedy=Remedy("raise", "advise.item", "3"))


def untold(item: int) -> object:
    """Something that cannot be pickled."""
    return lambda: item


def killed_once(item: tuple[int, str]) -> int:
    """The number; the first call for number 2 kills its own process. Each call leaves a line in a file."""
    number, folder = item
    logged((number, f"{folder}/calls"))
    marker = Path(folder, "killed")
    if number == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def always_killed(item: tuple[int, str]) -> int:
    """Number 1 kills its process whenever it is called."""
    number, folder = item
    logged((number, f"{folder}/calls"))
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def begun(item: tuple[int, str]) -> int:
    """Number 0 returns; others note their process in a file, hold another that they remove, and sleep far too long."""
    number, folder = item
    if number:
        held = Path(folder, f"held-{number}")
        held.touch()
        Path(folder, f"pid-{os.getpid()}").touch()
        try:
            time.sleep(600)
        finally:
            held.unlink()
    return number


def weighed(item: int, table: np.ndarray, offset: int) -> tuple[int, int, bool]:
    """An entry of a shared table, beside the worker's process and whether the table may be written to."""
    time.sleep(0.01)
    return int(table[item]) + offset, os.getpid(), table.flags.writeable


def slow_weighed(item: int, table: np.ndarray, offset: int) -> int:
    """An entry of a shared table, after a while."""
    time.sleep(0.03)
    return int(table[item]) + offset


def hungry(item: int) -> int:
    """Number 1 holds 240 MB for a while."""
    if item == 1:
        held = np.ones(30_000_000)
        time.sleep(2)
        return int(held[0])
    return item


def settings(item: int) -> tuple[int, int, set[int]]:
    """The worker's process, the threads that a task may use, and those of BLAS."""
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return os.getpid(), task_threads(), {each["num_threads"] for each in threadpool_info()}


class Loaded:
    """A value that leaves a line in a file each time it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(state)
        with Path(self.folder, "loaded").open("a") as file:
            file.write(f"{os.getpid()}\n")


def process_of(item: int, value: Loaded) -> int:
    """The worker's process."""
    time.sleep(0.02)
    return os.getpid()

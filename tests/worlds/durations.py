"""Processor time of each test, and tests whose mark `slow` is missing or too much.

`pytest --durations-file F tests/wire` adds a line a test to a file: processor seconds of this process
and its children, whether the test is marked as slow, and its name. Wall time would measure the machine's other work.
`python tests/worlds/durations.py F` then prints the tests that take longest and the wrong marks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

# Seconds from which a test is slow, and below which it is quick whatever the machine.
SLOW_S, QUICK_S = 0.3, 0.15
SHOWN = 60


@dataclass(frozen=True)
class Measured:
    """A test of name `name` with the processor time of its setup, call and teardown."""

    seconds: float
    is_slow: bool
    name: str

    @classmethod
    def read(cls, line: str) -> Measured:
        seconds, mark, name = line.rstrip("\n").split(" ", 2)
        return cls(seconds=float(seconds), is_slow=mark == "slow", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, help="file to which processor times of tests are added")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with its fixtures; those of a module or session count for the first test that asks for them."""
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        path: Path | None = item.config.getoption("--durations-file")
        if path is not None:
            mark = "slow" if item.get_closest_marker("slow") else "quick"
            with path.open("a") as stream:
                stream.write(f"{sum(os.times()[:4]) - before:.3f} {mark} {item.nodeid}\n")


def report(lines: Iterable[str]) -> list[str]:
    """Tests by time, and those whose mark does not fit it: a function is marked as its slowest case is."""
    tests = sorted((Measured.read(line) for line in lines), key=lambda test: -test.seconds)
    told = [f"{test.seconds:8.2f} s  {test.name}" for test in tests[:SHOWN]]
    most: dict[str, float] = {}
    for test in tests:
        name = test.name.partition("[")[0]
        most[name] = max(most.get(name, 0.0), test.seconds)
    told += [f"to be marked: {test.seconds:.2f} s  {test.name}" for test in tests if not test.is_slow and test.seconds > SLOW_S]
    told += sorted(
        {f"marked: {s:.2f} s  {n}" for t in tests if t.is_slow and (s := most[n := t.name.partition("[")[0]]) < QUICK_S}
    )
    quick, all_of_them = (sum(test.seconds for test in tests if not test.is_slow or every) for every in (False, True))
    return [*told, f"{quick:.0f} s without slow ones, {all_of_them:.0f} s in all, {len(tests)} tests"]


if __name__ == "__main__":
    print(*report(Path(sys.argv[1]).read_text().splitlines()), sep="\n")

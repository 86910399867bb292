"""Progress in a log: plain lines now and then, none for short work, and none after the end."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from veil.cli.common import Bar, StepBar, progress
from veil.cli.progress import LogLines, tracker
from veil.progress import StepCount


def lines_of(stream: io.StringIO, count: int) -> list[str]:
    """The lines of a stream once there are `count` of them, or after 10 s, which is far more than they need."""
    deadline = time.monotonic() + 10
    while len(stream.getvalue().splitlines()) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    return stream.getvalue().splitlines()


def test_long_work_says_what_it_does() -> None:
    """Also while a single step takes long: a thread writes. Lines end as lines of a log do."""
    stream = io.StringIO()
    with LogLines("matching", 50, stream=stream, first_s=0.01, every_s=0.02) as shown:
        assert re.fullmatch(r"veil: matching: 0 of 50, \d+ s", lines_of(stream, 1)[0])
        shown.update(12)
        shown.set_description("mapping")
        said = lines_of(stream, len(stream.getvalue().splitlines()) + 2)
        assert re.fullmatch(r"veil: mapping: 12 of 50, \d+ s, \d+ s left", said[-1])
    ended = stream.getvalue()
    time.sleep(0.06)
    assert stream.getvalue() == ended and "\r" not in ended and ended.endswith("\n")


def test_a_log_tells_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: by hand. A quarter in 30 seconds leaves 90; nothing is told of work without a total, or that is done."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines, shares = LogLines("a", 40, stream=io.StringIO()), LogLines("a", 8.0, stream=io.StringIO(), shares=True)
    now = 130.0
    assert (lines._done(), shares._done()) == ("0 of 40, 30 s", "0 %, 30 s")
    lines.update(10)
    shares.update(2.0)
    assert (lines._done(), shares._done()) == ("10 of 40, 30 s, 90 s left", "25 %, 30 s, 90 s left")
    lines.update(30)
    assert lines._done() == "40 of 40, 30 s"
    lines.total = None
    assert lines._done() == "40 done, 30 s"
    for shown in (lines, shares):
        shown.close()


class Terminal(io.StringIO):
    """A terminal as wide as tqdm takes one to be that tells nothing of itself."""

    def isatty(self) -> bool:
        return True


def test_steps_of_different_length_show_their_name_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: the share of the work, not the number of steps."""
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    with StepBar("attacking") as bar:
        count = StepCount(bar, 8.0)
        count.begin("short", 2.0)
        time.sleep(0.01)
        part = count.part(6.0, "long: ")
        part("first", 0.0, 2.0)
        part("second", 1.0, 2.0)
    shown = [line for line in stream.getvalue().split("\r") if line.strip()]
    assert any(re.match(r"long: first:  25%\|#.*\| \[00:00<00:00\]", line) for line in shown), shown
    assert any(line.startswith("long: second:  62%|") for line in shown), shown


def test_short_work_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with tracker("anything") as shown:
        assert isinstance(shown, LogLines)
    assert list(progress([1, 2, 3], "three")) == [1, 2, 3]
    with Bar("matching") as bar:
        bar(3, 4)
    assert capsys.readouterr().err == ""


def test_the_first_line_of_silent_work_comes_from_the_commands_own_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the commands use it, with the times made short."""
    monkeypatch.setattr("veil.cli.common.tracker", lambda what, total: LogLines(what, total, first_s=0.01, every_s=5.0))
    for _ in progress([1, 2], "extracting"):
        time.sleep(0.2)
    assert re.match(r"veil: extracting: \d of 2, 0 s\n", capsys.readouterr().err)

"""Progress in a log: plain lines now and then, none for short work, and none after the end."""

from __future__ import annotations

import io
import re
import time

import pytest

from veil.cli.common import Bar, progress
from veil.cli.progress import LogLines, tracker


def lines_of(stream: io.StringIO, count: int) -> list[str]:
    """The lines of a stream once there are so many; a second is far more than they need."""
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
        assert re.fullmatch(r"veil: mapping: 12 of 50, \d+ s", said[-1])
    ended = stream.getvalue()
    time.sleep(0.06)
    assert stream.getvalue() == ended and "\r" not in ended and ended.endswith("\n")


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

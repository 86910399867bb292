"""`veil evaluate` and `veil lab`: help with examples, wrong usage, and protocols that other packages bring."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from veil.cli import main
from veil_lab.cli.evaluate.commands import PROTOCOLS

COMMANDS = [
    ["evaluate"],
    ["evaluate", "homographies"],
    ["evaluate", "queries"],
    ["evaluate", "reconstruction"],
    ["lab", "train"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_helps_with_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "homographies", "set", "--workers", "0"])
    assert stop.value.code == 2
    assert "usage: veil" in capsys.readouterr().err


def test_a_folder_without_sequences_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "homographies", str(tmp_path)]) == 1
    assert "holds no sequences" in capsys.readouterr().err


def test_a_package_brings_a_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planted package: its protocol is listed and runs."""
    (tmp_path / "planted_protocol.py").write_text(
        "def register(protocols):\n    protocols.add_parser('tides').set_defaults(run=lambda _: print('ebb') or 0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    commands = EntryPoint(name="evaluate", value="veil_lab.cli.evaluate.commands:register", group="veil.commands")
    tides = EntryPoint(name="tides", value="planted_protocol:register", group=PROTOCOLS)
    points = {"veil.commands": [commands], PROTOCOLS: [tides]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points[group])
    monkeypatch.setattr("veil_lab.cli.evaluate.commands.entry_points", lambda group: points[group])
    assert main(["evaluate", "tides"]) == 0 and capsys.readouterr().out == "ebb\n"

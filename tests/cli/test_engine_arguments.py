"""The option --engine: texts that it takes, the engine that it opens, and that nothing of Dask is loaded for it."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from veil.cli.engine_arguments import AskedEngine, opened_engine
from veil.cli.records import add_record


def parser() -> argparse.ArgumentParser:
    """A parser with --workers and --engine."""
    made = argparse.ArgumentParser()
    made.add_argument("--workers", type=int, default=1)
    add_record(made, AskedEngine)
    return made


def test_the_engine_is_local_unless_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: no option, an address, and a text that names no engine."""
    arguments = parser().parse_args(["--workers", "3"])
    with opened_engine(arguments) as engine:
        assert engine.workers == 3
        assert type(engine).__name__ == "LocalEngine"
    assert parser().parse_args(["--engine", "dask:tcp://10.0.0.5:8786"]).engine == "dask:tcp://10.0.0.5:8786"
    with pytest.raises(SystemExit):
        parser().parse_args(["--engine", "ray"])
    assert "engine must be local, dask or dask:ADDRESS, got 'ray'" in capsys.readouterr().err


def test_the_option_loads_neither_dask_nor_numpy() -> None:
    """Loaded modules of a process that imports the option: `veil --help` stays light."""
    code = "import sys, veil.cli.engine_arguments; print([m for m in ('dask', 'distributed', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

"""The option --engine of commands whose work can run on several processes or machines; it goes beside their --workers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from veil.cli.common import Arguments
from veil.cli.records import Record, option
from veil.cli.remedies import advised
from veil.engine import Engine, check_engine, open_engine
from veil.errors import InputError


def _engine(text: str) -> str:
    """An argparse type for the text of an engine."""
    try:
        return check_engine(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(advised(error)) from None


@dataclass(frozen=True, kw_only=True)
class AskedEngine(Record):
    """Where work runs."""

    engine: str = option(
        "where the work runs: local (default): --workers processes of this machine; dask: a Dask cluster of as many, made "
        "here; dask:ADDRESS: a Dask scheduler that runs already, as dask:tcp://10.0.0.5:8786, with all of its workers "
        "(--workers is not used). Dask needs `pip install 'veil[cluster]'`",
        default="local",
        parse=_engine,
        metavar="ENGINE",
    )


def opened_engine(arguments: Arguments) -> Engine:
    """The engine that --engine and --workers name, to be used in a `with`. Raises what `veil.engine.open_engine` raises."""
    return open_engine(arguments.engine, workers=arguments.workers)

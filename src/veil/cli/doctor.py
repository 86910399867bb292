"""`veil doctor`: what this machine offers, which backend will serve, and how fast it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

from threadpoolctl import threadpool_info

from veil import distances
from veil.cli.common import at_least, explain, progress, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option
from veil.cli.remedies import advised
from veil.distances.measure import Rate, measure, offers
from veil.errors import VeilError
from veil.report.tables import Table, Words, fixed, names, numbers, percent

EXAMPLES = """\
  veil doctor                                 what is here, and a measurement of two seconds
  veil doctor --backend numpy --threads 1     the same for another backend
  veil doctor --backend gpu                   exit code 1 and the reason where it cannot serve
  veil doctor --json -
"""
# What can be installed beside veil: the packages of each, what it is for, and what to install.
EXTRAS = {
    "gpu": (("torch", "triton"), "distances on a graphics processor", "veil[gpu]"),
    "inversion": (("torch",), "pictures from features by PyTorch; without it NumPy makes the same", "veil[inversion]"),
    "hardnet": (("torch", "kornia"), "HardNet descriptors", "veil[hardnet]"),
    "heif": (("pillow-heif",), "photographs in HEIC", "veil[heif]"),
    "faces": (
        ("veil-faces", "dlib-bin", "face-recognition-models", "onnxruntime"),
        "face templates and descriptors of faces",
        "veil-faces[networks]",
    ),
    "lab": (("veil-lab",), "public protocols, and trainings", "veil-lab"),
}
DIMENSIONS = (2, 4)


@dataclass(frozen=True, kw_only=True)
class Doctor(Record):
    """Say which backends compute distances here and which will serve, and which extras are installed, and measure the one
    that serves for two seconds against the matrix product that distances contain: 100 % is as fast as that alone.
    """

    backend: distances.Backend = option("backend to measure (default auto)", default="auto")
    threads: int | None = option("threads (default: as many as there are cores)", parse=at_least(1))
    seconds: float = option("seconds of the measurement (default %(default)g; 0: none)", default=2.0)
    json: Path | None = json_file()


class MachineJson(TypedDict):
    """Versions, system, number of cores and linear algebra libraries of a machine."""

    veil: str
    python: str
    system: str
    cores: int | None
    blas: list[str]


class BackendJson(TypedDict):
    """A backend of distances: whether it serves, and by what means or why not."""

    backend: str
    serves: bool
    detail: str


class RateJson(TypedDict):
    """Measured times of a backend."""

    backend: str
    m: int
    features: int
    threads: int
    seconds: float
    product_seconds: float


class DoctorJson(TypedDict):
    """Offers of a machine."""

    machine: MachineJson
    backends: list[BackendJson]
    serving: str | None
    extras: Mapping[str, Mapping[str, str | None]]
    rates: list[RateJson]


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil doctor` to the parser's commands."""
    add_record_command(commands, "doctor", "what this machine offers", EXAMPLES, Doctor, _doctor)


def _doctor(arguments: Doctor) -> int:
    offered, refusal, serving = offers(), "", ""
    threads = arguments.threads or os.cpu_count() or 1
    try:
        serving = distances.resolve(arguments.backend, 4, 4)
    except VeilError as error:  # told below, after what else there is to know
        refusal = advised(error)
    rates = []
    if serving and arguments.seconds > 0:
        each = arguments.seconds / len(DIMENSIONS)
        rates = [
            measure(serving, m, threads=threads, seconds=each)  # type: ignore[arg-type]
            for m in progress(DIMENSIONS, "measuring")
        ]
    facts: DoctorJson = {
        "machine": _machine(),
        "backends": [{"backend": o.backend, "serves": not o.refusal, "detail": o.refusal or o.detail} for o in offered],
        "serving": serving or None,
        "extras": {name: {package: _version(package) for package in packages} for name, (packages, _, _) in EXTRAS.items()},
        "rates": [_record(rate, threads) for rate in rates],
    }
    write_json(arguments.json, facts)
    if str(arguments.json) != "-":
        _say_offers(arguments, facts)
        if serving:
            say(arguments, f"\nbackend {arguments.backend!r} is served by {serving!r}, {threads} thread(s)")
        if rates:
            say_table(arguments, rates_table(rates))
    if refusal:
        raise VeilError(refusal)
    return 0


def _machine() -> MachineJson:
    """Versions, system, number of cores and linear algebra libraries of this machine."""
    blas = [_library(item) for item in threadpool_info() if item["user_api"] == "blas"]
    return {
        "veil": version("veil"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "blas": sorted(set(blas)),
    }


def _say_offers(arguments: Doctor, facts: DoctorJson) -> None:
    """Print the machine, its backends and the installed extras."""
    machine = facts["machine"]
    explain(
        arguments,
        f"veil {machine['veil']}, Python {machine['python']}, {machine['system']}, {machine['cores']} cores",
        f"matrix products by {', '.join(machine['blas']) or 'NumPy'}",
        "",
    )
    say_table(arguments, backend_table(facts["backends"]))
    say(arguments, "")
    say_table(arguments, extra_table(facts["extras"]))


def backend_table(backends: Sequence[Mapping[str, Any]]) -> Table:
    """Which backends of distances serve here, and what of, or why not."""
    rows = [(item["backend"], "yes" if item["serves"] else "no", item["detail"]) for item in backends]
    return Table(columns=[*names("backend", "serves"), Words("by, or why not")], rows=rows)


def extra_table(extras: Mapping[str, Mapping[str, str | None]]) -> Table:
    """Which extras are installed, what each is for, and how to install those that are not."""
    rows = []
    for name, packages in extras.items():
        is_here = all(installed is not None for installed in packages.values())
        _, purpose, wanted = EXTRAS[name]
        rows.append((name, purpose if is_here else f"{purpose}: pip install '{wanted}'", is_here))
    return Table(
        columns=[*names("extra", "here"), Words("for, and how to get it")],
        rows=[(name, "yes" if is_here else "no", text) for name, text, is_here in rows],
    )


def rates_table(rates: Sequence[Rate]) -> Table:
    """Measured times, each beside that of the matrix product that distances contain."""
    return Table(
        columns=numbers("m", "features", "nearest two, ms", "matrix product alone, ms", "share of its speed, %"),
        rows=[
            (
                str(rate.m),
                f"{rate.features} x {rate.features}",
                fixed(1e3 * rate.seconds, 1),
                fixed(1e3 * rate.product_seconds, 1),
                percent(rate.share, 0),
            )
            for rate in rates
        ],
    )


def _record(rate: Rate, threads: int) -> RateJson:
    return {
        "backend": rate.backend,
        "m": rate.m,
        "features": rate.features,
        "threads": threads,
        "seconds": rate.seconds,
        "product_seconds": rate.product_seconds,
    }


def _library(item: dict[str, Any]) -> str:
    """Name, version and chosen kernels of a BLAS library: kernels for an older processor may take twice as long."""
    kernels_of = f" ({item['architecture']} kernels)" if item.get("architecture") else ""
    return f"{item['internal_api']} {item['version']}{kernels_of}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

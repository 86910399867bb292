"""Fixtures shared by all tests."""

from __future__ import annotations

import copy
import gc
import hashlib
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from checked_annotations import without_checks  # before any of veil
from veil import randomness
from veil.codebooks.codebook import Codebook
from veil.extraction import sift
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files import codebooks
from veil.files.photographs.examples import lund_door, other_place
from veil.files.photographs.pictures import read_picture
from veil.threads import settle
from worlds.storage import buckets, database, databases, postgres, shared_settings

__all__ = ["buckets", "database", "databases", "postgres", "shared_settings"]

pytest_plugins = ["worlds.durations"]

# One BLAS thread here and, by the environment, in xdist's workers and in programs that tests start: threads of several
# processes on one core wait for each other in loops, and the suite takes twice the processor time.
settle()

# Byte code is kept, in the folders in which numba keeps its machine code: without it, each worker compiles all tests and the
# package, and each program that a test starts the package once more.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A user's settings for veil reach no test, also not before one begins; these two name folders that tests read.
for _name in [name for name in os.environ if name.startswith("VEIL_") and name not in ("VEIL_DATA", "VEIL_SITE")]:
    del os.environ[_name]

# The longest tests, which would keep one of two workers busy when the other one has nothing left to do.
FIRST = (
    "lab/tests/test_store_kills.py",
    "tests/test_public_api.py",
    "tests/golden/",
    "tests/cli/test_demo.py",
    "tests/server/test_contract.py",
    "tests/attacks/distribution/test_shipped_networks.py",
    "lab/tests/studies/localization/",
)

# Numbers of the folders of tests that have a secret and a ledger and no `tmp_path`.
_homes = itertools.count()

# The number of this worker among those of xdist; None where it runs all tests by itself.
WORKER = int(os.environ["PYTEST_XDIST_WORKER"][2:]) if "PYTEST_XDIST_WORKER" in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No garbage is collected among tests and modules: neither while they are loaded nor later, for all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every second worker loads the files of a folder from the last one on: each reads what the other one has compiled."""
    report = yield
    if isinstance(collector, pytest.Directory) and WORKER is not None and WORKER % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker that has nothing left takes tests of another one, unless `--dist` says otherwise."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keys", type=int, default=0, metavar="N", help="draw other keys than with any other N (default 0)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same order in each worker, which begins with the longest tests."""
    if WORKER is not None:
        items.sort(key=lambda item: item.nodeid.split("::")[0].split("/"))
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.fixture(scope="session")
def veil_data() -> Path:
    """The folder of evaluation data, which cannot be shipped."""
    folder = os.environ.get("VEIL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("VEIL_DATA does not name the folder of evaluation photographs")
    return Path(folder)


@pytest.fixture(scope="session")
def door() -> dict[str, Features]:
    """Features of six of the bundled photographs."""
    with lund_door() as example:
        names = sorted(example.poses)[::2]
        options = SiftOptions(max_features=600)
        return {n: extract_sift(read_picture(example.folder / n, camera=example.camera), options) for n in names}


@pytest.fixture(scope="session")
def elsewhere() -> Features:
    """Features of the bundled photograph of another place."""
    with other_place() as path:
        return extract_sift(read_picture(path), SiftOptions(max_features=600))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations are not checked: for tests that make one call tens of thousands of times, and for programs as users run them.

    Each function that they reach is called by other tests with its annotations checked.
    """
    with without_checks():
        yield


@pytest.fixture(autouse=True, scope="session")
def _home_of_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No fixture of a module or a session touches the user's own secret and ledger."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("veil-home")
        patch.setenv("VEIL_HOME", str(home))
        yield home


@pytest.fixture(autouse=True, scope="session")
def _one_extraction_each() -> Iterator[None]:
    """SIFT of one picture under the same options is computed once in a process, but for the tests of extraction.

    It takes half a second, and tests in sixty files ask for it, mostly of the same photographs.
    """
    extracted: dict[tuple[Any, ...], Features] = {}
    compute = sift._extracted

    def extract(picture: Picture, options: SiftOptions, first_octave: int) -> Features:
        if os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/extraction/"):
            return compute(picture, options, first_octave)
        content = hashlib.sha256(picture.gray.tobytes()).digest()
        key = (content, picture.gray.shape, picture.digest, picture.camera, options, first_octave)
        if key not in extracted:
            extracted[key] = compute(picture, options, first_octave)
        return copy.deepcopy(extracted[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sift, "_extracted", extract)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_reading_each() -> Iterator[None]:
    """A bundled codebook is read once in a process, but for the tests of files; nobody can write to its arrays.

    To inflate and to hash it takes 20 ms, and hundreds of tests ask for it.
    """
    books: dict[str, Codebook] = {}
    read = codebooks._bundled

    def bundled(name: str) -> Codebook:
        if os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/files/"):
            return read(name)
        if name not in books:
            books[name] = book = read(name)
            for array in (book.stored, *(() if book.pca is None else (book.pca.mean, book.pca.axes))):
                array.flags.writeable = False
        return books[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codebooks, "_bundled", bundled)
        yield


@pytest.fixture(scope="session")
def _folder_of_homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def _private_home(request: pytest.FixtureRequest, _folder_of_homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a secret and a ledger of its own, in its `tmp_path` if it asks for one.

    Else the folder is there once something is written: to make one for each of thousands of tests takes a millisecond each. It
    has the name that pytest would give it, by which keys are drawn.
    """
    if "tmp_path" in request.fixturenames:
        folder: Path = request.getfixturevalue("tmp_path")
    else:
        name = re.sub(r"\W", "_", request.node.name)[:30]
        folder = _folder_of_homes / f"{name}{next(_homes)}"
    monkeypatch.setenv("VEIL_HOME", str(folder / "veil-home"))


@pytest.fixture(autouse=True, scope="session")
def _keys_by_test_file(_home_of_fixtures: Path, pytestconfig: pytest.Config) -> Iterator[None]:
    """Keys are drawn by the test's file, its VEIL_HOME and the number of keys drawn for these: none by chance.

    A search by samples fails now and then; its test must do the same in each run, whichever worker it comes to. The system is
    asked first: what a test does to it still shows. `--keys N` draws other keys for another N.
    """
    asked: Counter[str] = Counter()
    entropy = randomness._entropy
    series = f":{pytestconfig.getoption('keys')}" if pytestconfig.getoption("keys") else ""

    def key() -> bytes:
        drawn = entropy()
        home = Path(os.environ.get("VEIL_HOME", ""))
        home = Path() if home == _home_of_fixtures else home
        place = f"{os.environ['PYTEST_CURRENT_TEST'].split('::')[0]}:{home.parent.name.rstrip('0123456789')}/{home.name}"
        asked[place] += 1
        return hashlib.sha256(f"{place}:{asked[place]}{series}".encode()).digest()[: len(drawn)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_entropy", key)
        yield

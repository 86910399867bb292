"""Weights in PyTorch's files are read as PyTorch wrote them, and nothing that such a file names is run."""

from __future__ import annotations

import os
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.state_dicts import read_state_dict
from veil.files.weights import installed_file, load_aliked, load_network
from worlds import generator
from worlds.edges import flipped, outcome, truncated


def _rebuild_tensor_v2(*_: Any) -> None:
    """Stands for PyTorch's function of this name; the pickle holds only where it is."""


Storage = type("FloatStorage", (), {"__module__": "torch"})
_rebuild_tensor_v2.__module__ = "torch._utils"


class View:
    """A tensor: a view of a stored run."""

    def __init__(self, key: str, count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.arguments: tuple = (("storage", Storage, key, "cpu", count), offset, shape, strides, False, OrderedDict())

    def __reduce__(self) -> tuple:
        run, *rest = self.arguments
        return _rebuild_tensor_v2, (Run(run), *rest)


class Run:
    def __init__(self, pid: tuple) -> None:
        self.pid = pid


class _Pickler(pickle.Pickler):
    def persistent_id(self, item: Any) -> Any:
        return item.pid if isinstance(item, Run) else None


def torch_file(path: Path, tree: Any, runs: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file as `torch.save` lays it out (since 1.6), by `pickle` and `zipfile`: PyTorch itself need not be there."""
    for module, name, item in (("torch", "FloatStorage", Storage), ("torch._utils", "_rebuild_tensor_v2", _rebuild_tensor_v2)):
        stand_in = types.ModuleType(module)
        setattr(stand_in, name, item)
        monkeypatch.setitem(sys.modules, module, stand_in)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("weights/data.pkl", "w") as stream:
            _Pickler(stream, protocol=2).dump(tree)
        for key, numbers in runs.items():
            archive.writestr(f"weights/data/{key}", numbers.astype("<f4").tobytes())
    return path


def test_tensors_are_views_of_stored_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted truth: one run of numbers seen whole, in part, turned, and as a single number."""
    run = generator("run").normal(size=24).astype(np.float32)
    tensors = OrderedDict(
        whole=View("0", 24, 0, (2, 3, 4), (12, 4, 1)),
        part=View("0", 24, 20, (4,), (1,)),
        turned=View("0", 24, 0, (4, 6), (1, 4)),
        single=View("0", 24, 5, (), ()),
    )
    got = read_state_dict(torch_file(tmp_path / "w.pt", tensors, {"0": run}, monkeypatch))
    np.testing.assert_array_equal(got["whole"], run.reshape(2, 3, 4))
    np.testing.assert_array_equal(got["part"], run[20:])
    np.testing.assert_array_equal(got["turned"], run.reshape(6, 4).T)
    assert got["single"] == run[5]


def test_files_that_would_run_or_reach_beyond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin, a plain unpickler, runs what the first file names."""
    victim = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(victim),)

    run = np.zeros(4, np.float32)
    files = {
        "it names posix.mkdir": torch_file(tmp_path / "evil.pt", {"x": Evil()}, {}, monkeypatch),
        "reaches beyond": torch_file(tmp_path / "far.pt", {"x": View("0", 4, 2, (3,), (1,))}, {"0": run}, monkeypatch),
        "reaches beyond its": torch_file(tmp_path / "back.pt", {"x": View("0", 4, 3, (2,), (-1,))}, {"0": run}, monkeypatch),
        "no weights": torch_file(tmp_path / "none.pt", {"x": View("1", 4, 0, (3,), (1,))}, {"0": run}, monkeypatch),
        "not a state dict": torch_file(tmp_path / "list.pt", [1, 2], {}, monkeypatch),
    }
    for words, path in files.items():
        with pytest.raises(FileFormatError, match=words):
            read_state_dict(path)
    assert not victim.exists()
    with zipfile.ZipFile(files["it names posix.mkdir"]) as archive:
        pickle.loads(archive.read("weights/data.pkl"))
    assert victim.exists()


def test_damaged_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = torch_file(tmp_path / "w.pt", {"x": View("0", 4, 0, (4,), (1,))}, {"0": np.ones(4)}, monkeypatch)
    data = path.read_bytes()
    for bad in (*truncated(data, 30), *flipped(generator("bytes"), data, 60)):
        path.write_bytes(bad)
        outcome(lambda: read_state_dict(path))
    with pytest.raises(FileFormatError, match="there is no file of weights"):
        read_state_dict(tmp_path / "none.pt")


def test_weights_that_the_user_names(tmp_path: Path) -> None:
    """Inverse pair: the bundled weights, written again, make the same network; those of another are refused."""
    from importlib.resources import as_file, files

    with as_file(files("veil") / "data" / "aliked-n16rot.npz") as path:
        assert load_network("aliked-n16rot", path).kind == load_aliked().kind == "aliked-n16rot"
    with as_file(files("veil") / "data" / "hardtfeat.npz") as path, pytest.raises(InputError, match="not ALIKED's weights"):
        load_network("aliked-n16rot", path)
    with pytest.raises(InputError, match="takes no file of weights"):
        load_network("sift", tmp_path / "w.npz")
    assert load_network("sift") is None
    assert installed_file("veil-no-such-package", "w.pt") is None
    metadata = installed_file("numpy", "METADATA")
    assert metadata is not None and metadata.is_file() and installed_file("numpy", "w.pt") is None

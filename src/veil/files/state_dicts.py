"""Weights of networks from files: NumPy's .npz, and PyTorch's own, read without PyTorch and without running their code."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError

MOST_BYTES = 1 << 28  # of one file's tensors; the networks that veil runs have some megabytes
_STORED = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
}
_DAMAGE = (
    OSError,
    LookupError,
    TypeError,
    ValueError,
    EOFError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)  # what zipfile, pickle and NumPy raise for damaged files; encrypted ones and unknown methods are RuntimeErrors


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a state dict by name: an .npz of them, or what `torch.save` wrote since PyTorch 1.6.

    Of a PyTorch file only tensors are made; nothing else that its pickle names is looked up or called. Raises FileFormatError
    for a file that is missing, damaged, too large or of another kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise ValueError(f"its tensors take more than {MOST_BYTES >> 20} MiB")
            described = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if not described:
                with np.load(path, allow_pickle=False) as arrays:
                    return dict(arrays)
            with archive.open(described[0]) as stream:
                tensors = _Tensors(stream, archive, described[0].removesuffix("data.pkl")).load()
    except FileNotFoundError:
        raise FileFormatError(f"there is no file of weights {path}") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} holds no weights that veil can read ({error}); give an .npz or a PyTorch file") from None
    if not isinstance(tensors, Mapping) or not all(isinstance(value, np.ndarray) for value in tensors.values()):
        raise FileFormatError(f"{path} is not a state dict; save `network.state_dict()`")
    return {str(name): value for name, value in tensors.items()}


class _Tensors(pickle.Unpickler):
    """Reads the pickle of a PyTorch file, in which every tensor is a view of a stored run of numbers."""

    def __init__(self, stream: Any, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(stream)
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        """The class that the pickle names: ordered dictionaries, tensors or types of numbers; others are refused."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        if module == "torch" and name in _STORED:
            return _STORED[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no state dict needs")

    def persistent_load(self, pid: Any) -> np.ndarray:
        """A stored run of numbers, by its place in the archive."""
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"it names a {kind!r} of {dtype!r}")
        return np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), dtype=dtype)


def _view(stored: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> np.ndarray:
    """The tensor that a PyTorch file describes by its first number, shape and strides (in numbers)."""
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides), default=0) < 0 or last >= len(stored) or 0 in shape:
        raise pickle.UnpicklingError(f"a tensor of shape {shape} reaches beyond its {len(stored)} numbers")
    bytes_apart = tuple(stride * stored.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(stored[offset:], shape, bytes_apart, writeable=False).copy()

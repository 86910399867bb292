"""Tensors of a network's state dict: checked as they are taken, and the digest that names all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from veil.errors import InputError


def tensor(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A finite float32 tensor of a state dict. Raises InputError if it is missing, or of another shape or type."""
    array = arrays.get(name)
    if array is None or array.dtype != np.float32 or not np.isfinite(array).all() or shape not in (None, array.shape):
        got = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise InputError(f"weight {name} must be finite float32{f' of shape {shape}' if shape else ''}, got {got}")
    return array


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 (hex) of the names, shapes and numbers of all float32 tensors; counters of training do not count."""
    hasher = hashlib.sha256()
    for name in sorted(name for name, array in arrays.items() if array.dtype == np.float32):
        hasher.update(f"{name}{arrays[name].shape}".encode())
        hasher.update(np.ascontiguousarray(arrays[name], dtype="<f4").tobytes())
    return hasher.hexdigest()

"""Contributions that are meant to harm a map, forged from honest messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.forms import Subspaces, canonical
from veil.wire import Upload, decode, encode


def _upload(message: bytes) -> Upload:
    upload = decode(message)
    assert isinstance(upload, Upload)
    return upload


def misplaced(message: bytes, seed: int = 0) -> bytes:
    """The descriptors of a message at positions that were drawn uniformly over the image."""
    upload = _upload(message)
    size = np.array([upload.camera.width_px - 1, upload.camera.height_px - 1])
    places = np.random.default_rng(seed).uniform(0, 1, (len(upload), 2)) * size
    return encode(replace(upload, keypoints=places.astype(np.float32)))


def changed_a_little(message: bytes, seed: int = 0, *, px: float = 0.5, by: float = 0.01) -> bytes:
    """A message with noise on its positions (`px`) and on its subspaces (`by`, for each coordinate), in another order."""
    upload = _upload(message)
    chance = np.random.default_rng(seed)
    form = upload.form
    assert isinstance(form, Subspaces)
    order = chance.permutation(len(upload))
    origin = form.origin[order].astype(np.float64)
    basis = form.basis[order].astype(np.float64)
    noise = by / np.sqrt(origin.shape[1])
    origin, basis = canonical(
        origin + noise * chance.standard_normal(origin.shape), basis + noise * chance.standard_normal(basis.shape)
    )
    keypoints = upload.keypoints[order] + px * chance.standard_normal((len(upload), 2))
    size = np.array([upload.camera.width_px - 1, upload.camera.height_px - 1])
    form = replace(form, origin=origin.astype(np.float32), basis=basis.astype(np.float32))
    return encode(replace(upload, keypoints=np.clip(keypoints, 0, size).astype(np.float32), form=form))


def on_one_place(message: bytes) -> bytes:
    """The descriptors of a message, all at the middle of the image."""
    upload = _upload(message)
    middle = np.array([upload.camera.width_px / 2, upload.camera.height_px / 2], dtype=np.float32)
    return encode(replace(upload, keypoints=np.tile(middle, (len(upload), 1))))


def on_a_line(message: bytes) -> bytes:
    """The descriptors of a message, all along one row of the image."""
    upload = _upload(message)
    keypoints = upload.keypoints.copy()
    keypoints[:, 1] = upload.camera.height_px / 3
    return encode(replace(upload, keypoints=keypoints))


def of_one_descriptor(message: bytes) -> bytes:
    """The positions of a message, each with the subspace of the first feature."""
    upload = _upload(message)
    return encode(replace(upload, form=upload.form.take(np.zeros(len(upload), dtype=np.int64))))


def mirrored(message: bytes) -> bytes:
    """A message whose positions are mirrored left to right: several of them agree with each other, and with no camera."""
    upload = _upload(message)
    keypoints = upload.keypoints.copy()
    keypoints[:, 0] = upload.camera.width_px - 1 - keypoints[:, 0]
    return encode(replace(upload, keypoints=keypoints))

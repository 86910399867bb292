"""Released images of a simulated city, as benchmarks of scale take them: made once, in parts, and mapped into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from city import simulated

from veil.files.codebooks import bundled_codebook, read_codebook
from veil.forms import Flat, Points, Subspaces, lifted_guarantee
from veil.geometry.rigid import Rigid
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import usual_selection
from veil.randomness import seeded
from veil.threads import settle

BOOK = bundled_codebook()
SPACE = BOOK.compression.hardened_space


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released images of a city: rows `starts[i]` to `starts[i + 1]` of the other arrays belong to image i.

    `numbers` are origin and basis of each feature, mapped into memory in parts that begin at the rows `parts`.
    """

    starts: np.ndarray
    numbers: list[np.ndarray]
    parts: np.ndarray
    raw: np.ndarray
    keypoints: np.ndarray
    landmarks: np.ndarray
    poses: np.ndarray

    def rows(self, image: int) -> np.ndarray:
        """Rows of the features of an image."""
        return np.arange(self.starts[image], self.starts[image + 1])

    def form(self, rows: np.ndarray, kind: str) -> Flat:
        """Subspaces, or raw descriptors, of some features of one image."""
        if kind != "private":
            vectors = self.raw[rows].astype(np.float32)
            return Points(vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True), space=BOOK.raw_space)
        part = int(np.searchsorted(self.parts, rows[0], side="right")) - 1 if len(rows) else 0
        numbers = self.numbers[part][rows - self.parts[part]]
        return Subspaces(
            origin=numbers[:, 0].copy(),
            basis=numbers[:, 1:].copy(),
            space=SPACE,
            guarantee=lifted_guarantee("hardened"),
            profile="hardened",
            releasable=False,
        )

    def pose(self, image: int) -> Rigid:
        """The true pose of an image."""
        return Rigid(rotation=self.poses[image, :, :3].copy(), translation=self.poses[image, :, 3].copy())


def made(job: tuple[int, int, bool, Path, Path, Path], seed: int = 1, **options: float) -> Path:
    """Release images of a city into a file, if they are not there yet, and return its path without the suffix.

    `options` are those of `simulated`.
    """
    settle()
    first, count, foreign, folder, pool_file, material = job
    path = folder / f"{'foreign' if foreign else 'city'}{'' if seed == 1 else f'-of-{seed}'}-{first}"
    if path.with_suffix(".npz").is_file():
        return path
    pool, profile = read_codebook(pool_file), Profile.hardened(quantized=True)
    parts: dict[str, list] = {name: [] for name in ("numbers", "raw", "keypoints", "landmarks", "counts", "poses")}
    for image in simulated(seed, foreign=foreign, features=1000, path=material, **options).images(count, first=first):
        release = privatize(
            image.features,
            profile=profile,
            compression=BOOK.compression,
            decoys=pool,
            randomness=seeded(f"{seed}{foreign}{image.number}"),
            selection=usual_selection(profile),
        )
        form = release.upload.form
        assert isinstance(form, Subspaces)
        parts["numbers"].append(np.concatenate([form.origin[:, None], form.basis], axis=1))
        parts["raw"].append(image.features.descriptors[release.order])
        parts["keypoints"].append(image.features.keypoints[release.order])
        parts["landmarks"].append(image.landmarks[release.order])
        parts["counts"].append(len(release.order))
        parts["poses"].append(np.hstack([image.cam_from_world.rotation, image.cam_from_world.translation[:, None]]))
    numbers = np.concatenate(parts.pop("numbers"))
    np.save(path.with_suffix(".npy"), numbers)
    joined = {name: np.array(part) if name in ("counts", "poses") else np.concatenate(part) for name, part in parts.items()}
    np.savez(path.with_suffix(".npz"), **joined)  # type: ignore[arg-type]
    return path


def read(paths: list[Path]) -> Released:
    """The images of some files as one."""
    parts = [dict(np.load(path.with_suffix(".npz"))) for path in paths]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    numbers = [np.load(path.with_suffix(".npy"), mmap_mode="r") for path in paths]
    return Released(
        starts=np.concatenate([[0], np.cumsum(joined.pop("counts"))]),
        numbers=numbers,
        parts=np.cumsum([0, *(len(part) for part in numbers[:-1])]),
        **joined,
    )

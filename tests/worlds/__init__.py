"""Synthetic problems with planted truth, for tests and benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import Pca, fit_pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.features import Features
from veil.forms import Points, Subspaces, canonical
from veil.geometry.camera import MODELS, Camera
from veil.geometry.rigid import Rigid
from veil.ldp.guarantee import NoProof
from veil.space import Space


def generator(name: str) -> np.random.Generator:
    """Reproducible by case name."""
    return np.random.default_rng(list(name.encode()))


def sift_like(random: np.random.Generator, count: int, dim: int = 128) -> np.ndarray:
    """8-bit, non-negative, about a sixth zeros, length about 512: what COLMAP stores."""
    values = random.gamma(0.6, 1.0, (count, dim)) * (random.random((count, dim)) > 1 / 6)
    values[:, 0] += 0.1  # never all zero
    return np.clip(np.round(512 * values / np.linalg.norm(values, axis=1, keepdims=True)), 0, 255).astype(np.uint8)


def unit(values: np.ndarray) -> np.ndarray:
    """Rows of unit length in float64."""
    wide = values.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=-1, keepdims=True)


def affine_set(random: np.random.Generator, inside: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Canonical m-dimensional subspaces through the given points, random directions, float64."""
    origin, basis = canonical(inside, random.normal(size=(len(inside), m, inside.shape[1])))
    return origin, basis


def through(points: list[np.ndarray], extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One subspace through all `points` and along the rows of `extra`, as a set of one."""
    directions = np.array([p - points[0] for p in points[1:]] + list(extra))
    return canonical(points[0][None], directions[None])


def features(random: np.random.Generator, count: int, *, name: str = "image", width: int = 640, height: int = 480) -> Features:
    """SIFT-like features at random places of an image called `name`."""
    import hashlib

    return Features(
        keypoints=(random.random((count, 2)) * [width, height]).astype(np.float32),
        descriptors=sift_like(random, count),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=camera(width, height),
        image_digest=hashlib.blake2b(name.encode(), digest_size=32).digest(),
    )


def camera(width: int = 640, height: int = 480) -> Camera:
    """A pinhole camera of known focal length."""
    return Camera(model="PINHOLE", width_px=width, height_px=height, params=(500.0, 500.0, width / 2, height / 2))


def lens(model: str) -> Camera:
    """A camera of each model with a lens that could exist, all parameters different and none a short decimal."""
    focal = [math.pi * 190.0, math.pi * 191.0][: 1 if "RADIAL" in model or model == "SIMPLE_PINHOLE" else 2]
    others = [math.pi * value for value in (102.0, 75.0, -0.01, 0.002, 0.0003, -0.0002, 0.0004, 0.0005, -0.0006, 0.0007)]
    params = (*focal, *others[: MODELS[model] - len(focal)])
    return Camera(model=model, width_px=641, height_px=479, params=params)


def codebook(random: np.random.Generator, words: int = 512, slices: int = 4, *, kind: str = "centroids") -> Codebook:
    """A small codebook; centroids come with a PCA to 64 dimensions."""
    stored = sift_like(random, words)
    pca: Pca | None = None
    if kind == "centroids":
        pca = fit_pca(unit(sift_like(random, 400) + random.uniform(0, 4, (400, 128))), 64)
    return (DecoyPool if kind == "descriptors" else Dictionary)(
        descriptor="sift",
        normalization="L2",
        stored=stored,
        slices=slices,
        pca=pca,
        dither_steps=4.0 if pca else 0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=words),
    )


def subspaces(random: np.random.Generator, inside: np.ndarray, m: int, space: Space, *, releasable: bool = True) -> Subspaces:
    """A form of random subspaces through the given points."""
    origin, basis = affine_set(random, inside.astype(np.float64), m)
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=space,
        guarantee=NoProof(reason="synthetic"),
        profile="paper",
        releasable=releasable,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Points seen by cameras on an arc, with one descriptor a point and small noise an observation."""

    points: np.ndarray
    descriptors: np.ndarray
    poses: dict[str, Rigid]
    keypoints: dict[str, np.ndarray]
    visible: dict[str, np.ndarray]
    camera: Camera

    def form(self, name: str) -> Points:
        """The raw descriptors of one image, slightly perturbed as another view would be."""
        random = generator(f"view {name}")
        values = self.descriptors[self.visible[name]]
        values = unit(values + 0.02 * random.normal(size=values.shape))
        return Points(vectors=values.astype(np.float32), space=Space(descriptor="sift", normalization="L2", dim=128))


def world(name: str, *, images: int = 6, points: int = 300, noise_px: float = 0.3) -> World:
    """A cloud in front of cameras that look at it from an arc; keypoints carry Gaussian noise."""
    random = generator(name)
    cloud = random.uniform(-1, 1, (points, 3)) * [2.0, 1.5, 1.0] + [0, 0, 6.0]
    intrinsics = camera()
    poses, keypoints, visible = {}, {}, {}
    for index in range(images):
        angle = np.deg2rad(-20 + 40 * index / max(images - 1, 1))
        poses[f"{index:02d}"] = _looking_at_center(angle, height=0.15 * np.sin(3.0 * index))
    for key, pose in poses.items():
        xy = project(pose, cloud, intrinsics)
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        visible[key] = np.flatnonzero(inside)
        keypoints[key] = (xy[inside] + noise_px * random.normal(size=(inside.sum(), 2))).astype(np.float32)
    return World(
        points=cloud,
        descriptors=unit(sift_like(random, points)),
        poses=poses,
        keypoints=keypoints,
        visible=visible,
        camera=intrinsics,
    )


def _looking_at_center(angle: float, *, height: float) -> Rigid:
    center = np.array([6 * np.sin(angle), height, 6 - 6 * np.cos(angle)])
    forward = np.array([0, 0, 6.0]) - center
    forward /= np.linalg.norm(forward)
    right = np.cross([0, 1.0, 0], forward)
    right /= np.linalg.norm(right)
    rotation = np.array([right, np.cross(forward, right), forward])
    return Rigid(rotation=rotation, translation=-rotation @ center)


def project(pose: Rigid, points: np.ndarray, intrinsics: Camera) -> np.ndarray:
    """Pinhole projection in pixels."""
    in_camera = points @ pose.rotation.T + pose.translation
    fx, fy, cx, cy = intrinsics.params
    return in_camera[:, :2] / in_camera[:, 2:] * [fx, fy] + [cx, cy]

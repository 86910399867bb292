"""Estimates of descriptors from templates whose rotation and pool of decoys an attacker knows.

A subspace of hybrid or adversarial lifting holds its decoys exactly, so the pool names them. The descriptor is then estimated
as a fixed mixture of the subspace's most likely point, its decoys' mean, its origin, and the mean face. The attacker fits the
mixture on faces of his own (docs/theory/faces.md, Eq. 11).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil import distances
from veil.features import unit_length

# A member of the pool this near to a subspace, in lengths of a descriptor, lies in it.
MEETS = 1e-3
# Added to the variances of a crowd's descriptors, so that their inverse exists.
RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class Crowd:
    """Mean and inverse covariance of descriptors that an attacker has, in the coordinates of the templates."""

    mean: Float64[np.ndarray, "_"]
    precision: Float64[np.ndarray, "_ _"]

    @staticmethod
    def of(vectors: Float[np.ndarray, "faces dim"]) -> Crowd:
        """The crowd of these descriptors."""
        rows = vectors.astype(np.float64)
        covariance = np.cov(rows.T) + RIDGE * np.eye(rows.shape[1])
        return Crowd(mean=rows.mean(axis=0), precision=np.linalg.inv(covariance))


def likely_points(
    origin: Float64[np.ndarray, "templates dim"], basis: Float64[np.ndarray, "templates m dim"], crowd: Crowd
) -> Float64[np.ndarray, "templates dim"]:
    """The point of each subspace that is most likely for a Gaussian crowd: nearest to its mean by its precision."""
    metric = np.einsum("tmi,ij->tmj", basis, crowd.precision)
    gram = np.linalg.pinv(np.einsum("tmj,tkj->tmk", metric, basis), hermitian=True)
    along = np.einsum("tmk,tk->tm", gram, np.einsum("tmj,tj->tm", metric, crowd.mean - origin))
    return origin + np.einsum("tm,tmn->tn", along, basis)


def named_decoys(
    origin: Float64[np.ndarray, "templates dim"],
    basis: Float64[np.ndarray, "templates m dim"],
    pool: Float[np.ndarray, "pool dim"],
    count: int,
) -> Int64[np.ndarray, "templates count"]:
    """Rows of the `count` members of the pool that each subspace holds; -1 where fewer lie within `MEETS`."""
    form = origin.astype(np.float32), basis.astype(np.float32)
    nearest = distances.nearest(form, (pool.astype(np.float32), None), count)
    return np.where(nearest.distance <= MEETS, nearest.index, -1).astype(np.int64)


def ingredients(
    origin: Float64[np.ndarray, "templates dim"],
    basis: Float64[np.ndarray, "templates m dim"],
    pool: Float[np.ndarray, "pool dim"],
    count: int,
    crowd: Crowd,
) -> Float64[np.ndarray, "templates dim 4"]:
    """Parts of the mixture: the likely point, the mean of the named decoys (else that of the crowd), origin and mean face."""
    middle = np.broadcast_to(crowd.mean, origin.shape)
    decoys = middle
    if count:
        rows = named_decoys(origin, basis, pool, count)
        there = rows >= 0
        sums = np.einsum("tc,tcn->tn", there.astype(np.float64), pool.astype(np.float64)[np.maximum(rows, 0)])
        number = there.sum(axis=1, keepdims=True)
        decoys = np.where(number > 0, sums / np.maximum(number, 1), middle)
    return np.stack([likely_points(origin, basis, crowd), decoys, origin, middle], axis=2)


def fitted_mixture(
    parts: Float64[np.ndarray, "templates dim 4"], truth: Float64[np.ndarray, "templates dim"]
) -> Float64[np.ndarray, "4"]:
    """Weights of the ingredients whose mixture is nearest to the descriptors, by least squares."""
    solution: Float64[np.ndarray, "4"] = np.linalg.lstsq(parts.reshape(-1, parts.shape[2]), truth.reshape(-1), rcond=None)[0]
    return solution


def mixed(
    parts: Float64[np.ndarray, "templates dim 4"], weights: Float64[np.ndarray, "4"]
) -> Float64[np.ndarray, "templates dim"]:
    """The mixture, of unit length."""
    return unit_length(parts @ weights)

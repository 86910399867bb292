"""Descriptors of mirrored pictures, made from those of the pictures: what a mirror makes of SIFT, and of its public words.

SIFT's histograms lie in the frame of their keypoint, whose x axis follows the keypoint's orientation. A mirror turns the y axis
of that frame around, and all directions with it, so that the descriptor's numbers change places. The compression of the
hardened profile follows the principal axes of SIFT. Photographs and their mirror images have nearly the same ones, so that the
change of places becomes a rotation of the compressed space. What networks make of a mirrored picture follows from no rule.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64

from veil.codebooks.codebook import Codebook
from veil.forms import Flat, Points
from veil.space import Space

# Row of the number that stands at each place of a descriptor after its picture was mirrored; mirrored twice it is itself.
SIFT_MIRRORED = np.ascontiguousarray(np.arange(128).reshape(4, 4, 8)[::-1][:, :, -np.arange(8) % 8]).ravel()


def is_mirrored_by_places(space: Space) -> bool:
    """Whether a mirror changes nothing of a descriptor but the places of its numbers: those of SIFT, not compressed."""
    return space.descriptor == "sift" and space.dim == len(SIFT_MIRRORED) and not space.codebook


def mirrored_points(form: Points) -> Points:
    """Descriptors of SIFT, not compressed, of the features of a picture after it was mirrored, in the same order."""
    return replace(form, vectors=np.ascontiguousarray(form.vectors[:, SIFT_MIRRORED]))


def mirrored_descriptors(form: Flat, codebook: Codebook | None) -> Flat | None:
    """The descriptors, or the subspaces around them, of the features of a picture after it was mirrored, in the same order.

    - `form`: descriptors of SIFT, as they are or compressed.
    - `codebook`: the one that compressed descriptors name; None where there is none.

    None for other descriptors, and for compressed ones whose codebook is not given.
    """
    if is_mirrored_by_places(form.space):
        if isinstance(form, Points):
            return mirrored_points(form)
        origin, basis = form.origin[:, SIFT_MIRRORED], form.basis[:, :, SIFT_MIRRORED]
        return replace(form, origin=np.ascontiguousarray(origin), basis=np.ascontiguousarray(basis))
    if codebook is None or codebook.pca is None or form.space != codebook.compression.hardened_space:
        return None
    if not is_mirrored_by_places(codebook.raw_space):
        return None
    axes = codebook.pca.axes.astype(np.float64)
    # The rotation nearest to what the change of places makes of compressed descriptors; it keeps subspaces orthonormal.
    left, _, right = np.linalg.svd(axes[:, SIFT_MIRRORED] @ axes.T)
    turn = (left @ right).T.astype(np.float32)
    if isinstance(form, Points):
        return replace(form, vectors=form.vectors @ turn)
    return replace(form, origin=form.origin @ turn, basis=form.basis @ turn)


def mirrored_words(dictionary: Codebook, count: int) -> Int64[np.ndarray, "words count"]:
    """For each word of SIFT, the `count` words that its features most likely have in a mirror, the nearest first."""
    vectors: Float32[np.ndarray, "words dim"] = np.ascontiguousarray(dictionary.vectors[:, SIFT_MIRRORED])
    return dictionary.nearest(vectors, count).reshape(len(vectors), count)

"""Frames and sparse maps against planted positions, and canonical bases against what defines them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import fit_pca
from veil.codebooks.dictionary import Dictionary
from veil.errors import InputError, SpaceError
from veil.forms import Points, Subsets, Subspaces, canonical
from veil.inversion.maps import SIDE, Frame, SparseMap, back_projected, canonical_basis, points_map, subspaces_map, words_map
from veil.ldp.guarantee import NoProof
from veil.ldp.mechanism import SubsetMechanism
from veil.space import Space
from worlds import generator, unit

SIFT = Space(descriptor="sift", normalization="L2", dim=128)
WHOLE = Frame(width=SIDE, height=SIDE)


def lifted(random: np.random.Generator, count: int, m: int) -> Subspaces:
    origin, basis = canonical(random.normal(size=(count, 128)), random.normal(size=(count, m, 128)))
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=SIFT,
        guarantee=NoProof(reason="a test"),
        profile="paper",
        releasable=False,
    )


@pytest.mark.parametrize("size", [(512, 300), (300, 512), (256, 256), (101, 640)])
def test_a_dot_and_its_keypoint_move_to_one_pixel(size: tuple[int, int]) -> None:
    """Oracle: the resampled picture itself. Broken twins: half a pixel off, x and y exchanged."""
    width, height = size
    frame, random = Frame(width=width, height=height), generator("dots")
    for _ in range(5):
        x, y = frame.corner + random.uniform(8, frame.side_px - 8, 2)
        rows, columns = np.mgrid[:height, :width] + 0.5
        blob = 255 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * (frame.side_px / 100) ** 2))
        crop = frame.crop(np.repeat(blob.astype(np.uint8)[:, :, None], 3, axis=2)).astype(np.float64)[:, :, 0]
        across, down = np.arange(SIDE) + 0.5, np.arange(SIDE) + 0.5
        center = [crop.sum(axis=0) @ across / crop.sum(), crop.sum(axis=1) @ down / crop.sum()]
        np.testing.assert_allclose(frame.moved(np.array([[x, y]], dtype=np.float32))[0], center, atol=0.15)


def test_the_frame_is_the_central_square() -> None:
    frame = Frame(width=640, height=512)
    corners = np.array([[64, 0], [576, 512], [320, 256]], dtype=np.float64)
    np.testing.assert_allclose(frame.moved(corners), [[0, 0], [256, 256], [128, 128]])
    with pytest.raises(InputError, match="shape"):
        frame.crop(np.zeros((640, 512, 3), dtype=np.uint8))
    with pytest.raises(InputError, match="pixel"):
        Frame(width=0, height=3)


def test_descriptors_stand_at_their_pixels_and_nowhere_else() -> None:
    """Planted: of two in one pixel the one nearer to its center stays; NaN rows and those outside are left out."""
    random = generator("maps")
    vectors = random.normal(size=(6, 128))
    vectors[3] = np.nan
    keypoints = np.array([[3.9, 7.1], [3.4, 7.6], [255.99, 0], [9, 9], [256, 3], [-0.01, 3]])
    channels = points_map(WHOLE, keypoints, vectors)
    dense = channels.dense()
    assert dense.shape == (128, SIDE, SIDE) and dense.dtype == np.float32
    np.testing.assert_array_equal(dense[:, 7, 3], vectors[1].astype(np.float32))
    np.testing.assert_array_equal(dense[:, 0, 255], vectors[2].astype(np.float32))
    assert {tuple(cell) for cell in np.argwhere(dense.any(axis=0))} == {(7, 3), (0, 255)}
    np.testing.assert_array_equal(channels.mask, dense.any(axis=0))
    assert len(points_map(WHOLE, keypoints[3:4], vectors[3:4])) == 0


@pytest.mark.slow
def test_the_order_of_features_changes_nothing() -> None:
    """A release is shuffled, so a map must be a function of the set of features (release.md#order)."""
    random = generator("order")
    keypoints, vectors = random.uniform(0, 40, (3000, 2)), random.normal(size=(3000, 128))
    order = random.permutation(3000)
    first, second = points_map(WHOLE, keypoints, vectors), points_map(WHOLE, keypoints[order], vectors[order])
    assert len(first) < 1600  # 40x40 pixels: most share theirs
    np.testing.assert_array_equal(first.dense(), second.dense())


@pytest.mark.parametrize("m", [1, 2, 8, 16])
def test_the_canonical_basis_is_a_function_of_the_span(m: int) -> None:
    """Defining equations: orthonormal, the same span, upper triangular; and no rotation changes it."""
    random = generator(f"basis {m}")
    basis = lifted(random, 20, m).basis.astype(np.float64)
    basis = canonical(np.zeros((20, 128)), basis)[1]
    rotation = np.linalg.qr(random.normal(size=(20, m, m)))[0] * random.choice([-1, 1], (20, m, 1))
    one, other = canonical_basis(basis), canonical_basis(rotation @ basis)
    np.testing.assert_allclose(one, other, atol=1e-9)
    np.testing.assert_allclose(one @ np.swapaxes(one, 1, 2), np.broadcast_to(np.eye(m), (20, m, m)), atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(one, 1, 2) @ one, np.swapaxes(basis, 1, 2) @ basis, atol=1e-12)
    head = one[:, :, :m]
    np.testing.assert_allclose(head, np.triu(head), atol=1e-12)
    assert (np.diagonal(head, axis1=1, axis2=2) > 0).all()
    assert m == 1 or np.abs(basis - rotation @ basis).max() > 0.01  # or there would be nothing to see


def test_subspaces_stand_with_their_origin_first() -> None:
    form = lifted(generator("subspaces"), 3, 4)
    channels = subspaces_map(WHOLE, np.array([[5.5, 6.5], [1.5, 1.5], [200.5, 6.5]], dtype=np.float32), form)
    assert channels.cells.tolist() == [SIDE + 1, 6 * SIDE + 5, 6 * SIDE + 200]
    np.testing.assert_array_equal(channels.values[:, 0], form.origin[[1, 0, 2]])
    dense = channels.dense()
    assert dense.shape == (5 * 128, SIDE, SIDE)
    projector = np.einsum("kd,ke->de", *2 * [dense[128:, 6, 5].reshape(4, 128)])
    np.testing.assert_allclose(projector, form.basis[0].T @ form.basis[0], atol=1e-6)


def dictionary(random: np.random.Generator, count: int = 40) -> Codebook:
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=unit(random.normal(size=(count, 128))).astype(np.float32),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="a test", license="", image_count=0, descriptor_count=0, image_digests=()),
    )


def test_words_stand_in_the_order_of_their_ids() -> None:
    book = dictionary(generator("words"))
    form = Subsets(
        ids=np.array([[3, 17], [0, 39]], dtype=np.uint32),
        mechanism=SubsetMechanism(dictionary_size=40, epsilon=2.0, m=2),
        space=SIFT,
        dictionary=book.digest,
        releasable=False,
    )
    channels = words_map(WHOLE, np.array([[9.5, 0.5], [0.5, 0.5]], dtype=np.float32), form, book)
    np.testing.assert_array_equal(channels.values, book.vectors[[[0, 39], [3, 17]]])
    np.testing.assert_array_equal(channels.dense()[128:, 0, 9], book.vectors[17])
    with pytest.raises(SpaceError, match="not of the dictionary"):
        words_map(WHOLE, np.zeros((2, 2), dtype=np.float32), form, dictionary(generator("other words")))


def test_a_pca_that_loses_nothing_is_undone() -> None:
    """Inverse pair of `Codebook.into_space`. Broken twin: the dither's mean stays in."""
    random = generator("back")
    parts = np.abs(random.normal(size=(20, 128)))
    vectors = unit(np.abs(random.normal(size=(400, 20))) @ parts)
    shifted = unit(vectors + 4 / 2 / 512)
    book = replace(dictionary(random), pca=fit_pca(shifted, 24), dither_steps=4.0)
    inside = book.compression.into_space(
        Points(vectors=vectors.astype(np.float32), space=SIFT), book.compression.hardened_space
    )
    points = inside.vectors.astype(np.float64)
    points[7] = np.nan
    restored = back_projected(points, book.compression.hardened_space, book)
    np.testing.assert_allclose(np.delete(restored, 7, axis=0), np.delete(vectors, 7, axis=0), atol=2e-6)
    assert np.isnan(restored[7]).all()
    assert np.abs(shifted - vectors).max() > 1e-3  # what the twin would be wrong by
    np.testing.assert_array_equal(back_projected(points[:, :1] + vectors[:400], SIFT, None), points[:, :1] + vectors[:400])
    with pytest.raises(SpaceError, match="codebook"):
        back_projected(points, book.compression.hardened_space, None)


def test_what_is_no_map_is_refused() -> None:
    values, cells = np.zeros((2, 1, 128), dtype=np.float32), np.array([4, 9])
    assert len(SparseMap(kind="raw", cells=cells, values=values)) == 2
    for broken in ([9, 4], [4, 4], [-1, 4], [4, SIDE * SIDE]):
        with pytest.raises(InputError, match="ascending"):
            SparseMap(kind="raw", cells=np.array(broken), values=values)
    with pytest.raises(InputError, match="NaN"):
        SparseMap(kind="raw", cells=cells, values=values * np.nan)
    with pytest.raises(InputError, match="values must be"):
        SparseMap(kind="raw", cells=cells, values=values[:1])
    with pytest.raises(InputError, match="keypoints"):
        points_map(WHOLE, np.full((2, 2), np.nan), np.zeros((2, 128)))
    hardened = replace(lifted(generator("bad"), 2, 2), space=replace(SIFT, codebook="ab" * 32))
    with pytest.raises(SpaceError, match="attack the release first"):
        subspaces_map(WHOLE, np.zeros((2, 2), dtype=np.float32), hardened)

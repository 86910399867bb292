"""Float descriptors that were stored in few bits lie on a grid; nothing of it is left in what is released."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.decoys import DecoyPool
from veil.errors import InputError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import MANTISSA_BITS, Grain, grain_of, lift, on_eight_bit_grid
from veil.randomness import seeded
from veil.space import Space
from worlds import features, generator, unit

STUDY = seeded("grain")
HALF = Grain(bits=10, step=2.0**-24)


def signed(name: str, count: int, dim: int) -> np.ndarray:
    """Descriptors of unit length as a network's arithmetic gives them, float32."""
    return unit(generator(name).normal(size=(count, dim))).astype(np.float32)


def half(values: np.ndarray) -> np.ndarray:
    """Numbers as they come back from hloc's half precision."""
    return values.astype(np.float16).astype(np.float32)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper half of each float32, rounded."""
    return ((values.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def image(descriptors: np.ndarray) -> Features:
    space = Space(descriptor="network", normalization="L2", dim=descriptors.shape[1])
    return replace(features(generator("image"), len(descriptors)), space=space, descriptors=descriptors)


def pool(descriptors: np.ndarray) -> Codebook:
    return DecoyPool(
        descriptor="network",
        normalization="L2",
        stored=descriptors,
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=len(descriptors)),
    )


def residuals(form: Subspaces, points: np.ndarray) -> np.ndarray:
    """Distance of every point, scaled to unit length (columns), to every subspace (rows), in float64."""
    away = unit(points)[None] - form.origin.astype(np.float64)[:, None]
    inside = np.einsum("fpn,fmn->fpm", away, form.basis.astype(np.float64))
    return np.linalg.norm(away - np.einsum("fpm,fmn->fpn", inside, form.basis.astype(np.float64)), axis=2)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_grids_are_known_by_their_last_bits(dim: int) -> None:
    """Oracle: the formats themselves. A row of half precision among others counts; so do 16-bit integers."""
    values = signed("formats", 200, dim)
    assert grain_of(values).bits == MANTISSA_BITS and grain_of(values).is_full
    assert grain_of(half(values)) == HALF
    assert grain_of(bfloat16(values)).bits == 7
    assert grain_of(np.concatenate([values, half(values[:1]), values])) == replace(HALF, step=grain_of(values).step)
    fixed = (np.round(values * 2**15) / 2**15).astype(np.float32)
    assert grain_of(fixed).step == 2.0**-15 and not grain_of(fixed).is_full
    assert not any(on_eight_bit_grid(part) for part in (values, half(values), bfloat16(values), fixed))
    assert on_eight_bit_grid(np.round(values * 300).astype(np.float32) / np.float32(300))


def test_the_spacing_of_half_precision_is_numpys() -> None:
    """Second method: `numpy.spacing` of float16, from 1 to subnormal numbers and 0."""
    values = half(np.concatenate([np.geomspace(1e-8, 1, 5000), -np.geomspace(1e-8, 1, 5000), [0]]).astype(np.float32))
    np.testing.assert_array_equal(
        HALF.spacing(values.astype(np.float64)), np.spacing(np.abs(values).astype(np.float16)).astype(np.float64)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "bits"), [(half, 10), (bfloat16, 7)])
@pytest.mark.parametrize("dim", [64, 256])
def test_what_is_lifted_lies_off_the_grid(stored, bits: int, dim: int) -> None:
    """Descriptor and decoys miss the subspace by the dither, as far as the m + 1 of `dim` dimensions that it spans let it show.

    Oracle: neighbors of a number x are between 2^-(bits + 1) |x| and twice that apart, and a uniform dither as wide as its
    distance to them deviates by that over sqrt(12).

    The broken twin is the `paper` profile, which dithers nothing: the descriptor lies in its subspace to rounding.
    """
    values = stored(signed("lifted", 70, dim))
    values = values[np.abs(np.linalg.norm(values, axis=1) - 1) < 1e-3]  # what `Features` take
    item, decoys = image(values), pool(stored(signed("decoys", 600, dim)))
    wanted = {"compression": decoys.compression, "decoys": decoys, "randomness": STUDY}
    form = lift(item, profile=Profile.hardened(quantized=False), **wanted).form  # type: ignore[arg-type]
    least = 2.0 ** -(bits + 1) / np.sqrt(12)
    near = np.sort(residuals(form, decoys.stored), axis=1)[:, :4]
    for gaps in (np.diag(residuals(form, item.descriptors)), near):
        assert least * np.sqrt(1 - 5 / dim) < np.sqrt(np.mean(gaps**2)) < 2 * least
    twin = replace(Profile.paper(4, "sub-adversarial"), decoys="descriptors")
    broken = lift(item, profile=twin, **wanted).form  # type: ignore[arg-type]
    assert np.diag(residuals(broken, item.descriptors)).max() < 1e-5


def test_full_precision_is_not_moved_and_coarser_decoys_are_refused() -> None:
    """Decoys on a grid beside a descriptor that is on none would be known by it; the other way round both are dithered."""
    fine, coarse = signed("fine", 40, 64), signed("coarse", 300, 64)
    profile = Profile.hardened(quantized=False)
    form = lift(image(fine), profile=profile, compression=pool(coarse).compression, decoys=pool(coarse), randomness=STUDY).form
    assert np.diag(residuals(form, fine)).max() < 1e-5
    mixed = np.concatenate([coarse[:299], half(coarse[299:])])
    for bad in (half(coarse), mixed):
        with pytest.raises(InputError, match="stored in fewer bits"):
            lift(image(fine), profile=profile, compression=pool(bad).compression, decoys=pool(bad), randomness=STUDY)
    with pytest.raises(InputError, match="stored in fewer bits"):
        books = pool(bfloat16(coarse))
        lift(image(half(fine)), profile=profile, compression=books.compression, decoys=books, randomness=STUDY)
    lift(image(half(fine)), profile=profile, compression=pool(coarse).compression, decoys=pool(coarse), randomness=STUDY)

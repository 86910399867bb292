"""The released basis is Haar distributed in its span, so that it says nothing of the descriptor and nothing of the library.

10^5 features a profile, since a basis with the signs that LAPACK's QR leaves it passed at 1,200 (lifting.md#canonical-form).
What is looked at is what a server gets: after the lift, the canonical form, and the wire's rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import stats

from veil.codebooks.codebook import Codebook, Kind, Provenance
from veil.codebooks.compression import fit_pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.features import Features
from veil.forms import Subspaces, canonical
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import Secure, seeded
from veil.space import Space
from veil.wire import decode, encode
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Upload
from worlds import camera, generator, sift_like, unit
from worlds.power import require_even, require_law, require_mean, require_share

COUNT, RAW = 100_000, 8
# Cells and shares that are off by so much would be seen; the signs of LAPACK's QR moved them by 12 to 24 %.
SEES = 0.035


@dataclass(frozen=True, kw_only=True)
class Case:
    """A profile with the precision in which it is sent."""

    profile: Profile
    dtype: str = "float32"


CASES = {
    "paper m=2": Case(profile=Profile.paper(2, "adversarial")),
    "paper m=4": Case(profile=Profile.paper(4)),
    "hardened": Case(profile=Profile.hardened(quantized=True), dtype="float16"),
}


def book(kind: Kind) -> Codebook:
    random = generator(f"haar {kind}")
    stored = sift_like(random, 64, RAW)
    compressing = kind == "centroids"
    return (Dictionary if compressing else DecoyPool)(
        descriptor="sift",
        normalization="L2",
        stored=stored,
        slices=2,
        pca=fit_pca(unit(sift_like(random, 400, RAW) + random.uniform(0, 4, (400, RAW))), RAW - 2) if compressing else None,
        dither_steps=4.0 if compressing else 0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=64),
    )


@cache
def released(name: str) -> tuple[np.ndarray, Subspaces]:
    """Points in or near the subspaces that were fixed before the bases were drawn, and the subspaces as a server gets them."""
    case, random = CASES[name], generator(f"haar {name}")
    raw = sift_like(random, COUNT, RAW)
    image = Features(
        keypoints=np.zeros((COUNT, 2), dtype=np.float32),
        descriptors=raw,
        space=Space(descriptor="sift", normalization="L2", dim=RAW),
        camera=camera(),
        image_digest=bytes(32),
    )
    centroids, pool = (book(kind) for kind in ("centroids", "descriptors"))
    decoys = pool if case.profile.decoys == "descriptors" else centroids
    form = lift(image, profile=case.profile, compression=centroids.compression, decoys=decoys, randomness=seeded(name)).form
    point = unit(raw.astype(np.float64) + case.profile.dither_steps / 2)
    point = centroids.compression.require_pca().apply(point) if case.profile.compress else point
    return point, as_sent(form, case.dtype)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_descriptor_may_lie_in_any_direction_of_the_basis(name: str) -> None:
    """Coordinates of the descriptor have even signs, and squares as those of a uniform direction, Beta(1/2, (m-1)/2)."""
    point, form = released(name)
    coordinates = np.einsum("fin,fn->fi", form.basis.astype(np.float64), point - form.origin)
    direction = unit(coordinates)
    require_even(np.bincount((direction > 0) @ (1 << np.arange(form.m)), minlength=1 << form.m), sees=SEES)
    for row in range(form.m):
        require_law(direction[:, row] ** 2, stats.beta(0.5, (form.m - 1) / 2).cdf, sees=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_basis_is_uniform_relative_to_one_that_the_subspace_determines(name: str) -> None:
    """Haar on O(m): both orientations alike, every sign of the first row alike, and the trace has mean 0 and variance 1."""
    _, form = released(name)
    basis = form.basis.astype(np.float64)
    fixed = generator("fixed").normal(size=(form.m, form.space.dim))
    projected = np.einsum("fik,fkn->fin", np.einsum("in,fkn->fik", fixed, basis), basis)
    _, own = canonical(np.zeros((COUNT, form.space.dim)), projected)  # of the same vectors each time: a function of D alone
    turn = np.einsum("fin,fjn->fij", basis, own)
    np.testing.assert_allclose(np.abs(np.linalg.det(turn)), 1, atol=1e-3)
    require_share(int((np.linalg.det(turn) > 0).sum()), COUNT, 0.5, sees=SEES / 2)
    for row in (0, form.m - 1):
        require_even(np.bincount((turn[:, row] > 0) @ (1 << np.arange(form.m)), minlength=1 << form.m), sees=SEES)
    trace = np.trace(turn, axis1=1, axis2=2)
    require_mean(trace, 0.0, sees=0.03)
    require_mean(trace**2, 1.0, sees=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper m=2", "hardened"])
def test_other_ways_to_choose_a_basis_would_be_seen(name: str) -> None:
    """Broken twins: the Q of `numpy.linalg.qr` with LAPACK's signs, as it was once sent; and no random turn at all, where the
    first direction leads to the descriptor."""
    point, form = released(name)
    basis, offset = form.basis.astype(np.float64), point - form.origin
    turned = generator("twin").normal(size=(COUNT, form.m, form.m)) @ basis
    signed = np.swapaxes(np.linalg.qr(np.swapaxes(turned, 1, 2))[0], 1, 2)
    inside = np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, offset), basis)
    _, unturned = canonical(form.origin.astype(np.float64), np.concatenate([inside[:, None], basis[:, 1:]], axis=1))
    for twin in (signed, unturned):
        coordinates = np.einsum("fin,fn->fi", twin, offset)
        with pytest.raises(AssertionError, match="p = "):
            require_even(np.bincount((coordinates > 0) @ (1 << np.arange(form.m)), minlength=1 << form.m), sees=SEES)


@pytest.mark.parametrize(("dtype", "rounding"), [("float16", 2e-3), ("float32", 1e-6)])
def test_the_wire_leaves_every_basis_as_it_was(dtype: str, rounding: float) -> None:
    """Decoding orthonormalizes again, which must not choose other signs: what was uniform stays so, row by row."""
    image = Features(
        keypoints=np.zeros((500, 2), dtype=np.float32),
        descriptors=sift_like(generator("wire haar"), 500, RAW),
        space=Space(descriptor="sift", normalization="L2", dim=RAW),
        camera=camera(),
        image_digest=bytes(32),
    )
    words = book("centroids")
    form = lift(
        image, profile=Profile.paper(4), compression=words.compression, decoys=words, randomness=Secure(b"haar".ljust(32))
    ).form
    got = decode(encode(Upload(camera=image.camera, keypoints=image.keypoints, form=form), dtype=dtype)).form  # type: ignore[arg-type]
    assert isinstance(got, Subspaces)
    np.testing.assert_allclose(got.basis, form.basis, atol=rounding)


def test_the_orthonormal_factor_is_that_of_gram_and_schmidt() -> None:
    """The definition of the factor, row by row: it is equal for every library, whatever signs its QR has."""
    rows = generator("gram").normal(size=(200, 5, 9))
    _, basis = canonical(np.zeros((200, 9)), rows)
    for part in range(5):
        rest = rows[:, part] - np.einsum("fi,fin->fn", np.einsum("fin,fn->fi", basis[:, :part], rows[:, part]), basis[:, :part])
        np.testing.assert_allclose(basis[:, part], unit(rest), atol=1e-9)
    np.testing.assert_allclose(canonical(np.zeros((200, 9)), basis)[1], basis, atol=1e-14)  # and it is its own

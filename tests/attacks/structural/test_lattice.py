"""The lattice attack: planted descriptors come back exactly, lists are complete, and chance never passes its certificate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import betainc

from veil.attacks.structural.lattice import LatticeOptions, lattice_attack, lattice_lists
from veil.attacks.structural.lattice_certificate import (
    LEVELS,
    LEVELS_PER_OCTAVE,
    effective_dimension,
    identifiable_noise,
    log_false_claims,
    release_noise,
    spans,
)
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import fit_pca
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import train_words
from veil.errors import InputError, RangeError
from veil.extraction.learned import describe_keypoints
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features, unit_length
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.files.weights import load_network
from veil.forms import Subspaces, canonical
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil.space import Space
from veil.wire.codec_subspaces import as_sent
from worlds import generator, sift_like, subspaces, unit
from worlds.material import hardened_form, lifted, paper_form, photograph, truth

SIFT = Space(descriptor="sift", normalization="L2", dim=128)
REAL = Profile(name="real decoys", strategy="adversarial", m=4, decoys="descriptors")


def few(count: int, number: int = 1) -> Features:
    every = photograph(number)
    return replace(every, keypoints=every.keypoints[:count], descriptors=every.descriptors[:count])


def halved(form: Subspaces) -> Subspaces:
    """The form after its numbers were rounded to float16 and back."""
    return as_sent(form, "float16")


def described(kind: str, number: int, count: int, *, raw: bool = False) -> Features:
    """Features of a photograph: RootSIFT in 8 bits, or learned descriptors that were stored in 8 bits with one scale."""
    with lund_door() as example:
        picture = read_picture(sorted(example.folder.glob("*.jpg"))[number])
    options = SiftOptions(max_features=count, normalization="L1_ROOT" if kind == "root" else "L2")
    features = extract_sift(picture, options)
    if kind == "root":
        return features
    learned = describe_keypoints(picture, features, "hardtfeat", load_network("hardtfeat"))
    return learned if raw else replace(learned, descriptors=unit_length(np.rint(300 * learned.descriptors)).astype(np.float32))


@cache
def small_codebook(kind: str) -> Codebook:
    """A small codebook of centroids from another photograph."""
    sample = described(kind, 7, 300, raw=True)  # a word of one descriptor must not be of its grain
    words = train_words(sample.descriptors, 64, method="flat", iterations=4, seed=0)
    return Dictionary(
        descriptor=sample.space.descriptor,
        normalization=sample.space.normalization,
        stored=words,
        slices=2,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="test", license="none", image_count=1, descriptor_count=300),
    )


# The attack wins where the precondition holds.


@pytest.mark.slow
@pytest.mark.parametrize(("m", "count"), [(2, 30), (4, 30), (8, 30), (16, 8)])
def test_undithered_sift_is_recovered_exactly(m: int, count: int) -> None:
    """Planted truth: photographs, the paper's profile; the decoys are integers too, but of another length."""
    features = few(count)
    form = paper_form(features, m)
    estimates = lattice_attack(form)
    np.testing.assert_allclose(estimates.points, unit(features.descriptors), atol=1e-12)
    assert estimates.certified.all() and (estimates.confidence == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 4, 8])
def test_half_precision_is_no_defense(m: int) -> None:
    features = few(10)
    estimates = lattice_attack(halved(paper_form(features, m)))
    np.testing.assert_allclose(estimates.points, unit(features.descriptors), atol=1e-12)
    assert estimates.certified.all() or m == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "learned"])
def test_other_descriptors_of_8_bits_are_recovered_exactly(kind: str) -> None:
    features = described(kind, 2, 15)
    book = small_codebook(kind)
    for m in (2, 8):
        form = lift(
            features, profile=Profile.paper(m), compression=book.compression, decoys=book, randomness=seeded("other")
        ).form
        estimates = lattice_attack(form)
        np.testing.assert_allclose(estimates.points, unit_length(features.descriptors.astype(np.float64)), atol=2e-7)
        assert estimates.certified.all()


@pytest.mark.slow
def test_a_photograph_of_another_collection(veil_data: Path) -> None:
    features = extract_sift(read_picture(veil_data / "photos" / "bsds500" / "100075.jpg"), SiftOptions(max_features=20))
    estimates = lattice_attack(paper_form(features, 8))
    np.testing.assert_allclose(estimates.points, unit(features.descriptors), atol=1e-12)
    assert estimates.certified.all()


@pytest.mark.slow
@pytest.mark.parametrize("reduced", [112, 96])
def test_compression_alone_is_no_defense(reduced: int) -> None:
    """Behind a PCA the attack searches the preimage, of dimension m + n - k, and answers in the form's space."""
    features = few(3)
    pca = fit_pca(bundled_decoys().vectors[:2000].astype(np.float64), reduced)
    book = replace(bundled_codebook(), pca=pca, dither_steps=0.0)
    profile = Profile(name="compressed", strategy="hybrid", m=4, compress=True)
    form = lift(features, profile=profile, compression=book.compression, decoys=book, randomness=seeded("pca")).form
    assert effective_dimension(form, book.pca) == 4 + 128 - reduced
    estimates = lattice_attack(form, pca=book.pca)
    np.testing.assert_allclose(estimates.points, book.compression.require_pca().apply(unit(features.descriptors)), atol=1e-12)
    assert estimates.certified.all()


# It fails where the precondition does not.


@pytest.mark.slow
def test_the_hardened_profile_is_not_decided() -> None:
    form = halved(hardened_form(few(8)))
    estimates = lattice_attack(form, pca=bundled_codebook().pca)
    assert not estimates.decided.any() and not estimates.certified.any() and not estimates.confidence.any()
    lists = lattice_lists(form, pca=bundled_codebook().pca)
    assert not any(map(len, lists.candidates)) and not lists.certified.any()


@pytest.mark.slow
def test_dither_turns_success_into_none() -> None:
    """Bounds on both sides of the count (Eq. 2): a twentieth of a step is recovered, a whole one (sigma 0.29 > 0.20) is not."""
    random = generator("dither")
    u = few(12).descriptors
    shares = {}
    for width in (0.05, 1.0):
        space = replace(SIFT, dither_steps=width)
        form = subspaces(random, unit(u + width * random.random(u.shape)), 4, space)
        estimates = lattice_attack(form, options=LatticeOptions(beyond_reach=True))
        shares[width] = np.mean(np.linalg.norm(estimates.points - unit(u), axis=1) < 1e-3)
        assert estimates.decided.sum() == 12 * shares[width], "there is no wrong decision"
    assert shares == {0.05: 1.0, 1.0: 0.0}


def test_noise_that_is_not_declared_can_be_given() -> None:
    """Broken twin: without being told, the attack takes the grain for finer than it is."""
    random = generator("undeclared")
    u = few(6).descriptors
    form = subspaces(random, unit(u + 0.05 * random.random(u.shape)), 4, SIFT)
    told = lattice_attack(form, options=LatticeOptions(noise_steps=0.05 / math.sqrt(12)))
    np.testing.assert_allclose(told.points, unit(u), atol=1e-12)
    assert not lattice_attack(form, options=LatticeOptions(tours=0)).decided.any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "positive", "dithered"])
def test_chance_is_never_certified(kind: str) -> None:
    """Null: these spans hold no integer vectors, except the decoys of the last kind, which are of another length."""
    random = generator(f"null {kind}")
    options = LatticeOptions(tours=0, nonnegative=kind != "gaussian", length_steps=None if kind == "gaussian" else 512.0)
    for m, count in ((2, 60), (4, 60), (8, 30)):
        if kind == "dithered":
            form = lifted(few(count), replace(Profile.paper(m), dither_steps=4.0), case=kind)
            assert all(map(len, lattice_lists(form, options=options).candidates)), (
                "the decoys are found, and are no descriptors"
            )
        else:
            values = random.normal(size=(count, 128))
            form = subspaces(random, unit(np.abs(values) if kind == "positive" else values), m, SIFT)
        estimates = lattice_attack(form, options=options)
        assert not estimates.decided.any() and not estimates.certified.any()


# Lists.


@pytest.mark.slow
@pytest.mark.parametrize(("m", "count"), [(2, 20), (4, 20), (8, 12), (16, 4)])
def test_real_decoys_are_listed_with_the_descriptor(m: int, count: int) -> None:
    """Planted: the list is d and its m decoys, each a word of the pool, and nothing else."""
    features = few(count)
    form = lifted(features, replace(REAL, m=m), case="list")
    lists = lattice_lists(form)
    assert lists.certified.all()
    pool = bundled_decoys().vectors.astype(np.float64)
    for row, candidates in enumerate(lists.candidates):
        assert candidates.shape == (m + 1, 128)
        own = np.linalg.norm(candidates - unit(features.descriptors)[row], axis=1) < 1e-9
        decoys = (candidates @ pool.T).max(axis=1) > 1 - 1e-6
        assert own.sum() == 1 and decoys[~own].all()
    # One of m + 1 is right at best by chance, and none is certified.
    estimates = lattice_attack(form)
    assert not estimates.certified.any() and estimates.decided.all()
    np.testing.assert_allclose(estimates.confidence, 1 / (m + 1))


@pytest.mark.slow
def test_known_decoys_are_struck_off() -> None:
    features = few(10)
    form = lifted(features, REAL, case="struck")
    estimates = lattice_attack(form, decoys=bundled_decoys().vectors)
    np.testing.assert_allclose(estimates.points, unit(features.descriptors), atol=1e-12)
    assert estimates.certified.all()
    nothing = lattice_attack(form, decoys=np.concatenate([bundled_decoys().vectors, unit(features.descriptors)]))
    assert not nothing.decided.any()


def test_signed_decoys_are_listed() -> None:
    """Planted: integers with signs and of unknown length, and decoys of the same kind."""
    random = generator("signed")
    makers = np.rint(40 * random.normal(size=(6, 5, 128)))
    learned = Space(descriptor="learned", normalization="L2", dim=128)
    points = unit(makers)
    directions = points[:, 1:] - points[:, :1]
    origin, basis = canonical(points[:, 0], directions)
    form = replace(
        subspaces(random, points[:, 0], 4, learned), origin=origin.astype(np.float32), basis=basis.astype(np.float32)
    )
    lists = lattice_lists(form)
    for candidates, planted in zip(lists.candidates, points, strict=True):
        near = np.linalg.norm(candidates[:, None] - planted[None], axis=2) < 1e-9
        assert near.shape == (5, 5) and (near.sum(axis=0) == 1).all() and (near.sum(axis=1) == 1).all()
    assert lists.certified.all()


# The counts.


@pytest.mark.parametrize(("m_eff", "listed"), [(2, 0.21), (4, 0.20), (8, 0.16), (16, 0.11), (68, 0.0005)])
def test_identifiable_noise_solves_its_equation(m_eff: int, listed: float) -> None:
    """Defining equation: at sigma* the planted vector is as long as the Gaussian heuristic's shortest one."""
    sigma = identifiable_noise(m_eff, 128)
    g, span = 512 / math.sqrt(128), m_eff + 1
    kappa = g / sigma
    heuristic = math.sqrt(128 / (2 * math.pi * math.e)) * kappa ** ((128 - span) / 128)
    assert math.isclose(g * math.sqrt(128), heuristic, rel_tol=1e-9)
    assert float(f"{sigma:.2f}" if m_eff < 68 else f"{sigma:.4f}") == listed


@pytest.mark.parametrize("m", [2, 8])
def test_noise_of_a_release_is_read_off_its_numbers(m: int) -> None:
    """Second method: how far the planted integers are from the spans, root mean square over the dimensions outside them."""
    random = generator("noise")
    u = sift_like(random, 40).astype(np.float64)
    single = subspaces(random, unit(u), m, SIFT)
    for form in (single, halved(single)):
        axes = spans(form).axes
        apart = u - np.einsum("fs,fsn->fn", np.einsum("fn,fsn->fs", u, axes), axes)
        measured = math.sqrt(np.square(apart).sum() / (40 * (128 - m - 1)))
        assert 0.3 < measured / release_noise(form) < 1.1
    assert release_noise(halved(single)) > 1000 * release_noise(single)


def test_spans_tell_points_from_multiples() -> None:
    """Planted: t d has the coordinate t along the last axis, in units of the height, and lies in the span."""
    random = generator("spans")
    inside = unit(random.normal(size=(5, 128)))
    bases = spans(subspaces(random, inside, 4, SIFT))
    for row in range(5):
        vector = 321.0 * inside[row]
        assert vector @ bases.axes[row, -1] / bases.height[row] == pytest.approx(321, rel=1e-5)
        np.testing.assert_allclose(vector @ bases.axes[row].T @ bases.axes[row], vector, atol=1e-4)


def test_the_bound_on_false_claims_holds_and_is_no_wider_than_derived() -> None:
    """Enumeration: integer vectors within R of a random span, counted, against their expectation and its bound (Eq. G2-G3)."""
    dim, span, length, sine = 5, 2, 4.0, 0.3
    box = np.array(list(itertools.product(range(-4, 5), repeat=dim)), dtype=np.float64)
    inside = box[(np.linalg.norm(box, axis=1) <= length) & box.any(axis=1)]
    expected = len(inside) * betainc((dim - span) / 2, span / 2, sine**2)
    random = generator("bound")
    squared = np.square(inside).sum(axis=1)
    counts = []
    for _ in range(400):
        axes = np.linalg.qr(random.normal(size=(dim, span)))[0]
        counts.append(int((squared - np.square(inside @ axes).sum(axis=1) <= sine**2 * squared).sum()))
    assert np.mean(counts) == pytest.approx(expected, abs=5 * float(np.std(counts)) / math.sqrt(400))
    bound = math.exp(log_false_claims(np.array([length]), np.array([sine * length]), span=span, dim=dim)[0]) / LEVELS
    ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1) * (length + math.sqrt(dim) / 2) ** dim
    assert expected < bound < 1.3 * ball / len(inside) * expected  # 1.3: betainc by the first term of its series


def test_the_bound_rises_with_length_and_distance() -> None:
    lengths, distances = np.full(20, 512.0), np.geomspace(1e-6, 100, 20)
    assert (np.diff(log_false_claims(lengths, distances, span=5, dim=128)) > 0).all()
    lengths = np.geomspace(1, 3500, 90)
    log_bounds = log_false_claims(lengths, 1e-6 * lengths, span=5, dim=128)
    assert (np.diff(log_bounds) >= 0).all()
    # Levels: rounding up costs at most a factor 2^(1/8) in the radius.
    steps = np.diff(log_bounds[np.log2(lengths) > 9])
    assert steps.max() < 128 * math.log(2) * (1 / LEVELS_PER_OCTAVE + 0.2)
    wild = log_false_claims(np.array([0.0, 0.5, 2.0**12]), np.array([0.0, 0.1, 1e-9]), span=5, dim=128)
    assert (wild == math.inf).all()


# Doors.


def test_threads_and_progress_change_nothing() -> None:
    features = few(40)
    form = paper_form(features, 2)
    seen: list[tuple[int, int]] = []
    one = lattice_attack(form, progress=lambda done, total: seen.append((done, total)))
    two = lattice_attack(form, threads=2)
    assert seen == [(16, 40), (32, 40), (40, 40)]
    np.testing.assert_array_equal(one.points, two.points)
    nothing = form.take(np.zeros(0, dtype=np.int64))
    assert len(lattice_attack(nothing)) == len(lattice_lists(nothing)) == 0


def test_what_the_form_cannot_be_attacked_with_is_refused() -> None:
    form, book = hardened_form(few(2)), bundled_codebook()
    plain = paper_form(few(2), 2)
    with pytest.raises(InputError, match="public PCA"):
        lattice_attack(form)
    with pytest.raises(InputError, match="does not lead"):
        lattice_attack(plain, pca=book.pca)
    with pytest.raises(InputError, match="does not lead"):
        lattice_attack(form, pca=fit_pca(bundled_decoys().vectors[:300].astype(np.float64), 32))
    with pytest.raises(InputError, match="decoys must have shape"):
        lattice_attack(plain, decoys=np.zeros((3, 64)))
    with pytest.raises(InputError, match="NaN"):
        lattice_attack(replace(plain, origin=np.full_like(plain.origin, np.nan)))
    random = generator("wide")
    with pytest.raises(InputError, match="nothing is left"):
        lattice_attack(subspaces(random, unit(random.normal(size=(1, 128))), 126, SIFT))


@pytest.mark.parametrize(
    "wrong",
    [
        {"length_steps": math.nan},
        {"length_steps": 0.5},
        {"block": 60},
        {"tours": -1},
        {"noise_steps": math.nan},
        {"max_false_claims": 0.0},
        {"reach": 0.5},
        {"max_scale": math.inf},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(RangeError):
        LatticeOptions(**wrong)


def test_counts_out_of_range_are_refused() -> None:
    for m_eff in (0, 127):
        with pytest.raises(RangeError, match="m_eff"):
            identifiable_noise(m_eff, 128)
    with pytest.raises(RangeError, match="length_steps"):
        identifiable_noise(4, 128, length_steps=math.nan)
    with pytest.raises(RangeError, match="span"):
        log_false_claims(np.ones(1), np.ones(1), span=1, dim=128)


def test_truth_in_the_forms_space_is_what_is_returned() -> None:
    """The estimate lives where the audit measures: in the space of the form."""
    features = few(4)
    form = paper_form(features, 4)
    np.testing.assert_allclose(lattice_attack(form).points, truth(features, form), atol=1e-7)

"""The vertex attack: recovers planted zeros and SIFT of photographs, and claims nothing where there is nothing to find."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import beta
from threadpoolctl import threadpool_info, threadpool_limits

from veil.attacks.claims import Estimates
from veil.attacks.structural.simplex import minimize
from veil.attacks.structural.vertex import VertexOptions, vertex_attack, vertex_lists, vertex_reach
from veil.attacks.structural.vertex_search import Flats, FlatSearch, flats, independent_excess, weigh
from veil.codebooks.compression import Pca
from veil.errors import InputError, RangeError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces, canonical, lifted_guarantee
from veil.mechanisms.profile import Profile
from veil.space import Space
from veil.wire.codec_subspaces import as_sent
from worlds import generator
from worlds.material import hardened_form, lifted, paper_form, photograph, truth

SIFT = Space(descriptor="sift", normalization="L2", dim=128)
NO_DECOYS = np.empty((0, 128))
QUICK = VertexOptions(restarts=10)


def through(name: str, points: np.ndarray, m: int, *, half: bool = False, space: Space = SIFT) -> Subspaces:
    """Random subspaces through the unit vectors of `points`, their origins at random places."""
    rng, count = generator(name), len(points)
    directions = rng.normal(size=(count, m, points.shape[1]))
    offset = np.einsum("fm,fmn->fn", rng.normal(size=(count, m)), directions)
    parts = [part.astype(np.float32) for part in canonical(points + offset, directions)]
    form = Subspaces(
        origin=parts[0], basis=parts[1], space=space, guarantee=lifted_guarantee("paper"), profile="paper", releasable=False
    )
    return as_sent(form, "float16") if half else form


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def sparse(name: str, count: int, zeros: int, n: int = 128) -> np.ndarray:
    """Non-negative unit vectors with exactly `zeros` zeros."""
    rng = generator(name)
    points = rng.gamma(1.0, size=(count, n)) + 0.05
    for row in points:
        row[rng.permutation(n)[:zeros]] = 0
    return unit(points)


def errors(estimates: Estimates, expected: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.where(estimates.decided[:, None], estimates.points, 9.0) - expected, axis=1)


def upper_limit(successes: int, trials: int, level: float = 0.95) -> float:
    """Upper limit of a probability at the confidence `level` (Clopper and Pearson 1934)."""
    return float(beta.ppf(level, successes + 1, trials - successes)) if successes < trials else 1.0


@cache
def attacked(m: int) -> tuple[Estimates, np.ndarray, np.ndarray]:
    """The paper's sub-hybrid lifting of a bundled photograph: estimates, descriptors, and their numbers of zeros."""
    features = photograph(1, 70)
    form = paper_form(features, m)
    estimates = vertex_attack(form, seed=1, decoys=bundled_codebook().vectors)
    return estimates, truth(features, form), (features.descriptors == 0).sum(axis=1)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("m", "least"), [(2, 0.9), (4, 0.85), (8, 0.65)])
def test_the_paper_profile_is_broken(m: int, least: float) -> None:
    """Planted truth: exact where there are clearly more zeros than m; never certified where it is wrong."""
    estimates, expected, zeros = attacked(m)
    error = errors(estimates, expected)
    assert (error < 1e-3).mean() >= least
    assert (error[zeros > m + 8] < 1e-3).mean() >= 0.95
    assert estimates.certified.mean() >= least - 0.1
    assert error[estimates.certified].max() < 1e-5
    # With fewer zeros than m there is nothing to see, and with a few more a claim would be daring.
    assert not estimates.certified[zeros < m + 3].any()
    assert estimates.confidence[estimates.certified].min() > 0.999


def test_half_precision_does_not_help() -> None:
    """Planted truth behind float16: 60 zeros are still certified, at m = 4, to within its rounding."""
    points = sparse("half", 40, 60)
    estimates = vertex_attack(through("half", points, 4, half=True), seed=2, decoys=NO_DECOYS, options=QUICK)
    assert estimates.certified.mean() >= 0.9
    assert errors(estimates, points).max() < 1e-3


def test_results_follow_from_the_seed_alone() -> None:
    """Oracle: equality with other numbers of threads; another seed gives other estimates."""
    form = through("seeds", sparse("seeds", 30, 6), 8)
    options = VertexOptions(restarts=1, steps=2, chunk_features=8)
    steps: list[tuple[int, int]] = []
    first = vertex_attack(form, seed=3, options=options, progress=lambda *done: steps.append(done))
    again, other = (
        vertex_attack(form, seed=3, options=replace(options, threads=2)),
        vertex_attack(form, seed=4, options=options),
    )
    assert steps == [(8, 30), (16, 30), (24, 30), (30, 30)]
    np.testing.assert_array_equal(first.points, again.points)
    assert np.abs(first.points - other.points).max() > 0.01


NULLS = {
    # The densest near zero of all that has no zeros: SIFT with the least dither that the hardened profile admits.
    "dithered": lambda rng, count: photograph(1, 300).descriptors[rng.integers(0, 300, count)] + rng.random((count, 128)),
    "dense": lambda rng, count: np.abs(rng.normal(size=(count, 128))),
    "signed": lambda rng, count: rng.normal(size=(count, 128)),
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", NULLS)
@pytest.mark.parametrize("half", [False, True])
def test_nothing_is_certified_where_there_is_nothing(kind: str, half: bool) -> None:
    """Statistics: 0 of 240 trials in each cell, so at most 1.3 % with 95 % confidence; and chance alone finds no descriptor."""
    certified, near, trials = 0, 0, 0
    for m in (2, 4, 8):
        points = unit(NULLS[kind](generator(f"null {kind} {m}"), 80))
        estimates = vertex_attack(through(f"null {m}", points, m, half=half), seed=m, decoys=NO_DECOYS, options=QUICK)
        certified, trials = certified + int(estimates.certified.sum()), trials + len(estimates)
        # What is dithered by a step is within 1e-3 of a true vertex now and then, at m = 2.
        near += int((errors(estimates, points) < 1e-3).sum()) if kind != "dithered" else 0
        if kind == "signed":
            # No point of these subspaces is non-negative, and the attack says so.
            assert not estimates.decided.any() and not estimates.confidence.any()
    assert certified == 0 and upper_limit(certified, trials) < 0.013
    assert near <= 0.01 * trials


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_certificate_needs_three_zeros_too_many() -> None:
    """Planted truth around the limit: m + 2 zeros may be reached, but are no proof; m + 3 are."""
    for excess in (2, 3):
        points = sparse(f"excess {excess}", 20, 4 + excess)
        estimates = vertex_attack(through(f"excess {excess}", points, 4), seed=5, decoys=NO_DECOYS)
        assert (errors(estimates, points) < 1e-5).mean() >= 0.5
        assert estimates.certified.any() == (excess == 3)
        assert (errors(estimates, points)[estimates.certified] < 1e-5).all()


def test_without_words_nothing_is_certified() -> None:
    """A sparse decoy is a degenerate vertex, too: whoever cannot tell decoys has proved nothing about the descriptor."""
    points = sparse("no words", 20, 40)
    form = through("no words", points, 2)
    estimates = vertex_attack(form, seed=6)
    assert errors(estimates, points).max() < 1e-5
    assert not estimates.certified.any() and estimates.confidence.min() > 0.999


def test_known_decoys_are_passed_over() -> None:
    """Planted truth: lines through d and one sparse decoy; with the word known, d is the answer, else either."""
    points, words = sparse("with decoys", 60, 30), sparse("decoys", 60, 30)
    origin, basis = canonical(points + 0.3 * (words - points), (words - points)[:, None])
    form = replace(through("x", points, 1), origin=origin.astype(np.float32), basis=basis.astype(np.float32))
    known = vertex_attack(form, seed=7, decoys=words, options=QUICK)
    assert known.certified.all() and errors(known, points).max() < 1e-5
    blind = errors(vertex_attack(form, seed=7, options=QUICK), points) < 1e-5
    assert 15 <= blind.sum() <= 45


@pytest.mark.parametrize("half", [False, True])
def test_a_word_is_known_again_where_half_precision_moved_it(half: bool) -> None:
    """At m = 16 vertices at words of one descriptor were estimated 0.01 from them and certified. Planted: words moved so."""
    words = sparse("singletons", 8, 30)
    search = FlatSearch(flats(through("singletons", words, 16, half=half)), words, 1)
    moved = words + 0.01 * unit(generator("moved").normal(size=words.shape))
    assert search._at_words(moved).all() == half
    assert search._at_words(words).all()
    assert not search._at_words(words + 0.1 * unit(moved - words)).any()


@pytest.mark.slow
def test_lists_hold_the_descriptor_and_its_decoys() -> None:
    """Planted truth: every entry is d or a word of the pool; most lists hold d and all their decoys that have enough zeros."""
    features, words = photograph(2, 40), bundled_decoys().vectors.astype(np.float64)
    form = lifted(features, Profile(name="paper", strategy="adversarial", m=2, decoys="descriptors"), case="lists")
    expected = truth(features, form)
    lists = vertex_lists(form, seed=8, options=VertexOptions(restarts=12))
    holds, entries = [], 0
    for candidates, d in zip(lists.candidates, expected, strict=True):
        assert len(candidates) <= 3
        is_descriptor = np.linalg.norm(candidates - d, axis=1) < 1e-5
        is_word = np.linalg.norm(words[(candidates @ words.T).argmax(axis=1)] - candidates, axis=1) < 1e-5
        assert (is_descriptor | is_word).all()
        holds.append(is_descriptor.any())
        entries += len(candidates)
    assert np.mean(holds) >= 0.8
    assert entries >= 2.4 * len(lists)
    np.testing.assert_array_equal(lists.certified, [len(candidates) > 0 for candidates in lists.candidates])
    single = vertex_attack(form, seed=8, decoys=bundled_decoys().vectors, options=QUICK)
    assert (errors(single, expected) < 1e-5).mean() >= 0.8


def test_lists_of_nothing_are_empty() -> None:
    """Null: dense descriptors give no entry."""
    lists = vertex_lists(
        through("empty", unit(np.abs(generator("dense points").normal(size=(30, 128)))), 4), seed=9, options=QUICK
    )
    assert not lists.certified.any() and all(candidates.shape == (0, 128) for candidates in lists.candidates)


def pca_of(n: int, k: int) -> Pca:
    rng = generator("pca")
    axes = np.linalg.qr(rng.normal(size=(n, k)))[0].T.astype(np.float32)
    return Pca(mean=(0.1 * rng.random(n)).astype(np.float32), axes=axes)


def test_the_preimage_of_a_compressed_subspace_contains_the_descriptor() -> None:
    """Defining equation: Eq. 4; the flat holds d, has m + n - k dimensions and an orthonormal basis."""
    points, pca = sparse("preimage", 6, 40), pca_of(128, 112)
    space = replace(SIFT, dim=112, codebook="ab" * 32)
    form = through("preimage", pca.apply(points), 3, space=space)
    where = flats(form, pca)
    assert where.basis.shape == (6, 3 + 16, 128) and where.m == 19
    np.testing.assert_allclose(
        np.matmul(where.basis, np.swapaxes(where.basis, 1, 2)), np.tile(np.eye(19), (6, 1, 1)), atol=1e-12
    )
    offset = points - where.origin
    inside = np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", where.basis, offset), where.basis)
    assert np.abs(offset - inside).max() < 1e-6


def test_a_weak_compression_is_no_defense() -> None:
    """Planted truth: 16 lost dimensions and m = 2 are like m = 18; 60 zeros are plenty. Answers are in the form's space."""
    points, pca = sparse("weak", 20, 60), pca_of(128, 112)
    form = through("weak", pca.apply(points), 2, space=replace(SIFT, dim=112, codebook="ab" * 32))
    estimates = vertex_attack(form, seed=10, pca=pca, decoys=NO_DECOYS, options=QUICK)
    assert estimates.points.shape == (20, 112)
    assert estimates.certified.mean() >= 0.9
    assert errors(estimates, pca.apply(points)).max() < 1e-4


@pytest.mark.slow
def test_dither_alone_is_no_defense() -> None:
    """Planted truth: a dither of four steps without a PCA leaves most descriptors within 0.1 at m = 2, and no certificate."""
    points = unit(photograph(3, 60).descriptors + 4 * generator("dither").random((60, 128)))
    form = through("dither", points, 2, space=replace(SIFT, dither_steps=4.0))
    estimates = vertex_attack(form, seed=11, decoys=NO_DECOYS, options=VertexOptions(restarts=5))
    assert (errors(estimates, points) < 0.1).mean() >= 0.7
    assert not estimates.certified.any()


@pytest.mark.slow
def test_the_hardened_profile_holds() -> None:
    """The defense that is the default: few are near, none exact, none certified, to an attacker who knows PCA and dither."""
    features = photograph(1, 24)
    form = hardened_form(features)
    book = bundled_codebook()
    estimates = vertex_attack(form, seed=12, pca=book.compression.require_pca(), options=VertexOptions(restarts=2))
    error = errors(estimates, truth(features, form))
    assert estimates.decided.mean() >= 0.9 and not estimates.certified.any()
    assert (error < 0.1).mean() <= 0.13 and error.min() > 1e-3


def test_zeros_are_counted_as_planted() -> None:
    """Golden values: the excess at the planted point and at a wrong vertex, and Eq. V4 by hand."""
    points = sparse("counted", 5, 20)
    where = flats(through("counted", points, 4))
    weighed = weigh(where, points + 1e-8)
    assert weighed.excess.tolist() == [16] * 5
    assert np.abs(weighed.points - points).max() < 1e-6
    dense = unit(np.abs(points) + 0.01)
    other = weigh(Flats(origin=where.origin, basis=where.basis, noise=where.noise, dither=0.0), dense * 1.5)
    assert other.excess.tolist() == [0] * 5
    # No zeros, and a length that is off by more than chance cares for: no evidence at all.
    np.testing.assert_allclose(other.evidence, 0, atol=1e-12)


def test_zeros_that_whole_faces_share_prove_nothing() -> None:
    """By hand: 20 normals in a plane of 3-space leave a line; one more zero on it makes a vertex, with excess 0, not 18."""
    rng = generator("faces")
    generic, plane = rng.normal(size=(3, 24)), np.concatenate([rng.normal(size=(2, 20)), np.zeros((1, 20))])
    alone = np.concatenate([plane, rng.normal(size=(3, 1))], axis=1)
    assert independent_excess(generic) == 21
    assert independent_excess(generic, most=5) == 5
    assert independent_excess(alone) == 0
    # Two and three more through one point of the line: one and two coincidences.
    assert independent_excess(np.concatenate([plane, rng.normal(size=(3, 2))], axis=1)) == 1
    assert independent_excess(np.concatenate([plane, rng.normal(size=(3, 3))], axis=1)) == 2


def test_third_points_on_the_plane_of_sparse_decoys_are_no_entries() -> None:
    """Broken twin: counting all zeros would list points that are neither; all that is listed is planted."""
    shared = generator("shared").random((40, 1, 128)) < 0.3
    points = np.stack([sparse(f"plane {k}", 40, 12) for k in range(3)], axis=1) * ~shared
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    origin, basis = canonical(points.mean(axis=1), points[:, 1:] - points[:, :1])
    form = replace(through("x", points[:, 0], 2), origin=origin.astype(np.float32), basis=basis.astype(np.float32))
    lists = vertex_lists(form, seed=13, options=QUICK)
    distance = [
        np.linalg.norm(candidates[:, None] - true, axis=2) for candidates, true in zip(lists.candidates, points, strict=True)
    ]
    assert max(entry.min(axis=1).max() for entry in distance if len(entry)) < 1e-5
    # All three have some 8 own zeros, so most are recovered.
    assert sum((entry.min(axis=0) < 1e-5).sum() for entry in distance if len(entry)) >= 80


@pytest.mark.slow
def test_reach_tells_what_is_needed() -> None:
    """By hand: the table's entries and the mean of two; Eq. 4: 4 + 128 - 48 = 84."""
    for m, share in [(2, 0.94), (8, 0.801), (12, 0.704)]:
        form = through("reach", sparse("reach", 2, 20), m)
        reach = vertex_reach(form)
        assert reach.applies and reach.dimension == m and reach.share == pytest.approx(share)
    learned = vertex_reach(replace(form, space=replace(SIFT, descriptor="hardtfeat")))
    assert not learned.applies and learned.share == 0
    hard = vertex_reach(hardened_form(photograph(1, 2)), pca=bundled_codebook().compression.require_pca())
    assert hard.dimension == 84 and 0 < hard.share < 0.02 and "dither of 4" in hard.reason


def test_bad_input_is_refused() -> None:
    form = through("bad", sparse("bad", 2, 20), 2)
    with pytest.raises(InputError, match="PCA"):
        vertex_attack(form, seed=1, pca=pca_of(128, 112))
    with pytest.raises(InputError, match="PCA"):
        vertex_attack(replace(form, space=replace(SIFT, codebook="ab" * 32)), seed=1)
    with pytest.raises(InputError, match="decoys"):
        vertex_attack(form, seed=1, decoys=np.zeros((3, 64)))
    with pytest.raises(InputError, match="decoys"):
        vertex_lists(form, seed=1, decoys=np.full((3, 128), np.nan))
    for name in ("restarts", "steps", "chunk_features", "threads"):
        with pytest.raises(RangeError, match=name):
            VertexOptions(**{name: 0})
    for floor in (0.0, float("nan"), float("inf")):
        with pytest.raises(RangeError, match="floor"):
            VertexOptions(floor=floor)
    for spread in (-0.1, float("nan"), 9.0):
        with pytest.raises(RangeError, match="spread"):
            VertexOptions(spread=spread)
    nothing = form.take(np.arange(0))
    assert len(vertex_attack(nothing, seed=1)) == 0 and len(vertex_lists(nothing, seed=1)) == 0


def test_blas_has_one_thread_below_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: matrix products inside the attack's threads had BLAS threads of their own, which wait for each other in
    loops; beside two busy processes that took several times the processor time."""
    seen: set[int] = set()

    def spied(*arguments, **options):
        seen.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return minimize(*arguments, **options)

    monkeypatch.setattr("veil.attacks.structural.vertex_search.minimize", spied)
    form = through("one BLAS thread", sparse("one BLAS thread", 4, 20), 4)
    with threadpool_limits(2, user_api="blas"):
        vertex_attack(form, seed=0, options=VertexOptions(restarts=1, steps=1, threads=2))
    assert seen == {1}

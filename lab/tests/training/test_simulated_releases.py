"""Releases that an attacker simulates: modes as the attack searches them, and what a photograph sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veil.attacks.distribution.context import neighbor_rows
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.modes import ModeOptions, density_modes
from veil.audit.ground_truth import in_space
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_picture
from veil.forms import Points, Subspaces, canonical
from veil.ldp.guarantee import NoProof
from veil_lab.training.altered import altered_copies
from veil_lab.training.context_options import ContextTraining
from worlds import generator

PLANTED = NoProof(reason="planted")
# Few ascents: the way that they go is the subject, and not what they reach.
FEW = ModeOptions(entries=60, starts=6, steps=6, modes=4)


@pytest.fixture(autouse=True)
def torch() -> Any:
    return pytest.importorskip("torch", reason="context is trained in PyTorch, the extra veil-lab[training]")


@pytest.fixture(scope="module")
def density() -> DensityNetwork:
    return bundled_learned_model().density


def test_modes_are_those_of_the_attack(torch: Any, density: DensityNetwork) -> None:
    """Second method: `density_modes` in NumPy on the same flats, of which some reach fewer modes than asked for."""
    from veil_lab.training.simulated_releases import TorchDensity, modes_of

    random, dim = generator("modes"), density.space.dim
    corners = random.normal(size=(80, 5, dim)) * 0.12
    corners[:8, 1:] = corners[:8, :1] + 0.01 * random.normal(size=(8, 4, dim))
    origin, basis = (item.astype(np.float32) for item in canonical(corners[:, 0], corners[:, 1:] - corners[:, :1]))
    vectors = (random.normal(size=(200, dim)) * 0.12).astype(np.float32)
    form = Subspaces(origin=origin, basis=basis, space=density.space, guarantee=PLANTED, profile="hardened", releasable=False)
    for search in (FEW, replace(FEW, apart=0.6, entries=500)):
        known = density_modes(form, density, Points(vectors=vectors, space=density.space, guarantee=PLANTED), options=search)
        tensors = torch.from_numpy(origin), torch.from_numpy(basis)
        points, ratios = modes_of(*tensors, TorchDensity.of(density, "cpu"), torch.from_numpy(vectors), search)
        has = np.isfinite(known.log_ratios)
        assert 0.3 < has.mean() < 1 or search is FEW
        # A start or a mode at the limit of a distance may fall on its other side.
        same = (np.isfinite(ratios.numpy()) == has).all(axis=1)
        gaps = np.abs(np.where(has, known.log_ratios, 0) - np.where(has, ratios.numpy(), 0)).max(axis=1)
        moved = np.abs(np.where(has[..., None], known.points, 0) - points.numpy()).max(axis=(1, 2))
        assert (same & (gaps < 1e-3) & (moved < 1e-3)).mean() > 0.95


def test_distinct_rows_are_those_of_the_attack(torch: Any) -> None:
    """Second method: `distinct`, feature by feature."""
    from veil.attacks.distribution.modes import distinct
    from veil_lab.training.simulated_releases import distinct_rows

    random = generator("distinct")
    inside, values = random.normal(size=(20, 30, 2)).astype(np.float32), random.normal(size=(20, 30)).astype(np.float32)
    rows = distinct_rows(torch.from_numpy(inside), torch.from_numpy(values), 0.9, 12).numpy()
    for one, points, heights in zip(rows, inside, values, strict=True):
        kept = distinct(points, heights, 0.9, 12)
        assert one.tolist() == kept + [-1] * (12 - len(kept))
    assert (rows == -1).any()


def simulated(photographs: Sequence[Features], density: DensityNetwork, **changes: Any) -> list[Any]:
    from veil_lab.training.simulated_releases import simulated_releases

    options = ContextTraining(device="cpu", **changes)
    return simulated_releases(photographs, bundled_codebook(), density, options=options, search=FEW)


def test_releases_are_of_what_a_photograph_sends(door: dict[str, Features], density: DensityNetwork) -> None:
    """Defining equations: the truth is of features that are apart, lies by its flat, and views hold ever fewer of it."""
    photographs = [item.drawn(90, generator("few")) for item in list(door.values())[:3]]
    releases = simulated(photographs, density, releases=7, seed=1)
    again = simulated(photographs, density, releases=7, seed=1)
    assert len(releases) == 7 and all((a.points == b.points).all() for a, b in zip(releases, again, strict=True))
    assert {len(item.views) for item in releases} == {1, 3}  # some are of all features
    truths = [in_space(item, density.space, bundled_codebook()).astype(np.float32) for item in photographs]
    for release in releases[:3]:  # the first round is not mirrored
        gaps = [np.abs(release.truth.numpy()[:, None] - truth).max(axis=2).min(axis=1).max() for truth in truths]
        of = int(np.argmin(gaps))
        assert gaps[of] < 1e-6
        sizes = [len(view.members) for view in release.views]
        assert sizes == sorted(sizes, reverse=True) and sizes[0] == len(release.points)
        for view in release.views:
            rows = [int(np.abs(truths[of] - truth).max(axis=1).argmin()) for truth in release.truth[view.members].numpy()]
            keypoints = photographs[of].keypoints[rows].astype(np.float64)
            assert np.array_equal(view.neighbors.numpy(), neighbor_rows(keypoints, 6))
            apart = np.linalg.norm(keypoints[:, None] - keypoints, axis=2) + np.diag(np.full(len(rows), np.inf))
            assert apart.min() >= 10 or len(release.views) == 1
    with pytest.raises(InputError, match="3 photographs"):
        simulated(photographs[:2] * 3, density, releases=2)
    with pytest.raises(InputError, match="got 0"):
        simulated([item.take(np.arange(5)) for item in photographs], density, releases=2)
    with pytest.raises(InputError, match="lie apart"):
        simulated([item.take(np.zeros(20, dtype=int)) for item in photographs], density, releases=1)


def test_the_truth_lies_by_its_flat(door: dict[str, Features], density: DensityNetwork) -> None:
    """Statistics bounded on both sides: dither moves a descriptor a little; a broken twin has another photograph's truth."""
    from veil_lab.training.simulated_releases import _Maker

    photographs = [item.drawn(80, generator("flat")) for item in list(door.values())[:3]]
    maker = _Maker(photographs, bundled_codebook(), generator("maker"))
    origin, basis = maker.lifted(photographs[0], 0, False)
    off = []
    for item in photographs[:2]:
        gap = in_space(item, density.space, bundled_codebook()) - origin
        off.append(np.linalg.norm(gap - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, gap), basis), axis=1))
    assert 0 < np.median(off[0]) < 0.05 < 0.2 < np.median(off[1])


def test_mirrored_descriptors_are_those_of_the_mirrored_photograph() -> None:
    """Second method: SIFT of the mirrored pixels, at the same places. Broken twin: descriptors that were not mirrored."""
    from veil_lab.training.simulated_releases import mirrored

    with other_place() as path:
        picture = read_picture(path)
    options = SiftOptions(max_features=300)
    features = extract_sift(picture, options)
    other = extract_sift(next(altered_copies(picture, 1)), options)
    turned = mirrored(features)
    gaps = np.linalg.norm(turned.keypoints[:, None] - other.keypoints, axis=2)
    pairs = [(row, int(gaps[row].argmin())) for row in range(len(turned)) if (gaps[row] < 0.3).sum() == 1]
    rows, others = np.array(pairs).T
    assert len(rows) > 50
    off = [
        np.median(np.linalg.norm(item.descriptors[rows].astype(float) - other.descriptors[others], axis=1))
        for item in (turned, features)
    ]
    assert off[0] < 60 < 150 < off[1]
    assert np.array_equal(mirrored(turned).descriptors, features.descriptors)


def test_options_are_checked(torch: Any) -> None:
    from veil.errors import RangeError
    from veil_lab.training.simulated_releases import torch_device

    for bad in ({"steps": 0}, {"releases": 0}, {"batch_features": 0}, {"rate": 1.0}, {"seed": -1}):
        with pytest.raises(RangeError):
            ContextTraining(**bad)
    assert torch_device("cpu") == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            torch_device("cuda")

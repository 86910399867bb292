"""Networks of context learn a planted law of photographs, and nothing where there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from veil.attacks.distribution.context import (
    NEIGHBORS,
    ContextNetwork,
    context_beliefs,
    context_estimates,
    distance_inputs,
    mean_spacing,
    neighbor_rows,
)
from veil.attacks.distribution.modes import Modes
from veil.forms import Subspaces
from veil.ldp.guarantee import NoProof
from veil.space import Space
from veil_lab.training.context_options import ContextTraining
from worlds import generator

DIM, FEATURES, CANDIDATES = 8, 60, 4
SPACE = Space(descriptor="sift", normalization="L2", dim=DIM)


@pytest.fixture(autouse=True)
def torch() -> Iterator[Any]:
    """PyTorch on one thread: of so small products several wait for each other."""
    module = pytest.importorskip("torch", reason="context is trained in PyTorch, the extra veil-lab[training]")
    threads = module.get_num_threads()
    module.set_num_threads(1)
    yield module
    module.set_num_threads(threads)


class Planted:
    """Release of a photograph of one of six kinds: its features share a direction, and decoys have those of other kinds.

    With `law` false features have any. All descriptors lie `OFF` from their mode along the last axis.
    """

    OFF = 0.1

    def __init__(self, name: str, *, law: bool = True) -> None:
        random = generator(name)
        kinds = random.integers(0, 6, (FEATURES, CANDIDATES))
        self.right = random.integers(0, CANDIDATES, FEATURES)
        if law:
            own = random.integers(0, 6)
            kinds = (own + random.integers(1, 6, kinds.shape)) % 6
            kinds[np.arange(FEATURES), self.right] = own
        directions = np.concatenate([np.eye(3, DIM), -np.eye(3, DIM)])
        self.points = 0.5 * directions[kinds] + 0.1 * random.normal(size=(FEATURES, CANDIDATES, DIM))
        self.points[..., -1] = 0
        self.ratios = np.zeros((FEATURES, CANDIDATES))
        self.ratios[:3, 3:] = np.where(self.right[:3, None] < 3, -np.inf, 0)
        self.keypoints = random.uniform(0, 100, (FEATURES, 2))
        self.truth = self.points[np.arange(FEATURES), self.right] + self.OFF * np.eye(DIM)[-1]
        self.basis = np.tile(np.eye(DIM)[[0, DIM - 1]], (FEATURES, 1, 1))

    @property
    def modes(self) -> Modes:
        points = np.where(np.isfinite(self.ratios)[..., None], self.points, np.nan)
        return Modes(points=points, log_ratios=self.ratios)

    def release(self, torch: Any) -> Any:
        from veil_lab.training.simulated_releases import ReleaseView, SimulatedRelease

        rows = neighbor_rows(self.keypoints, NEIGHBORS)
        gaps = np.linalg.norm(self.keypoints[rows] - self.keypoints[:, None], axis=2)
        known = np.isfinite(self.ratios)[..., None]
        single = {
            "points": np.where(known, self.points, 0),
            "log_ratios": self.ratios,
            "truth": self.truth,
            "basis": self.basis,
            "keypoints": self.keypoints,
        }
        view = ReleaseView(
            members=torch.arange(FEATURES),
            neighbors=torch.from_numpy(rows),
            distances=torch.from_numpy(distance_inputs(gaps, mean_spacing(self.keypoints))),
        )
        return SimulatedRelease(
            **{name: torch.from_numpy(item.astype(np.float32)) for name, item in single.items()}, views=(view,)
        )


def trained(torch: Any, *, law: bool = True, photographs: int = 24, steps: int = 50) -> ContextNetwork:
    from veil_lab.training.context_training import train_context

    releases = [Planted(f"training {number}", law=law).release(torch) for number in range(photographs)]
    options = ContextTraining(steps=steps, batch_features=200, rate=1e-2, device="cpu")
    return train_context(releases, space=SPACE, source="planted", options=options)


def share(net: ContextNetwork, *, law: bool) -> float:
    """Share of features of unseen photographs of which the right candidate is chosen."""
    worlds = [Planted(f"unseen {number}", law=law) for number in range(10)]
    return float(np.mean([context_beliefs(one.modes, net, one.keypoints).argmax(axis=1) == one.right for one in worlds]))


def test_the_planted_law_is_learned(torch: Any) -> None:
    """Planted: photographs share a direction, which no candidate shows alone. Null: where they do not, it is chance.

    Modes alone are right once in four. 600 features tell 0.25 from 0.35 with five standard deviations.
    """
    net = trained(torch)
    assert share(net, law=True) > 0.9
    assert 0.15 < share(net, law=False) < 0.35
    nothing = trained(torch, law=False, photographs=6, steps=10)
    assert share(nothing, law=False) < 0.35


def test_the_way_to_the_vertex_is_learned(torch: Any) -> None:
    """Planted: every descriptor lies by 0.1 along one axis from its mode, inside of the flat."""
    net, one = trained(torch, steps=150), Planted("unseen way")
    form = Subspaces(
        origin=one.points[:, 0].astype(np.float32),
        basis=one.basis.astype(np.float32),
        space=SPACE,
        guarantee=NoProof(reason="planted"),
        profile="hardened",
        releasable=False,
    )
    claim = context_estimates(form, one.modes, np.eye(CANDIDATES)[one.right], net)
    off = np.linalg.norm(claim.points - one.truth, axis=1)
    assert np.median(off) < 0.5 * Planted.OFF


def test_the_module_answers_as_the_attack(torch: Any) -> None:
    """Second method: `context_beliefs` in NumPy, with weights of no training at all, for two photographs at once."""
    from veil_lab.training.context_training import ContextModule, joined

    torch.manual_seed(3)
    module: Any = ContextModule(DIM)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    worlds = [Planted("one"), Planted("two")]
    releases = [one.release(torch) for one in worlds]
    batch, _ = joined([(release, release.views[0]) for release in releases])
    logs, moves = module(batch)
    net = module.network(SPACE, "planted")
    beliefs = np.concatenate([context_beliefs(one.modes, net, one.keypoints) for one in worlds])
    assert np.abs(logs[-1].exp().detach().numpy() - beliefs).max() < 1e-4 and np.ptp(beliefs) > 0.3
    points = np.concatenate([one.points for one in worlds])
    known = np.isfinite(np.concatenate([one.ratios for one in worlds]))
    ways = net.vertex((points * math.sqrt(DIM)).astype(np.float32))
    assert np.abs(moves.detach().numpy() - ways)[known].max() < 1e-4


def test_a_seed_gives_the_same_weights(torch: Any) -> None:
    from veil_lab.training.context_training import train_context

    releases = [Planted(f"seed {number}").release(torch) for number in range(3)]
    first, again, other = (
        train_context(
            releases,
            space=SPACE,
            source="",
            options=ContextTraining(steps=3, batch_features=100, seed=seed, device="cpu"),
        )
        for seed in (1, 1, 2)
    )
    for name in ("alone", "style", "whole", "vertex"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(first, name), getattr(again, name), strict=True))
    assert np.array_equal(first.neighbors.pair, again.neighbors.pair)
    assert not np.array_equal(first.neighbors.pair, other.neighbors.pair)


def test_features_without_a_near_mode_teach_nothing(torch: Any) -> None:
    """Defining equation: the loss is that of the other features; of none it is zero."""
    from veil_lab.training.context_training import Answers, ContextModule, context_loss, joined

    module: Any = ContextModule(DIM)
    release = Planted("missed").release(torch)
    batch, answers = joined([(release, release.views[0])])
    loss = context_loss(module, batch, answers)
    far = answers.truth.clone()
    far[:20] += 5.0
    logs, _ = module(batch)
    assert float(context_loss(module, batch, Answers(answers.truth + 5.0, answers.basis)).detach()) == 0.0
    assert float(loss.detach()) > 0 and math.isfinite(float(context_loss(module, batch, Answers(far, answers.basis)).detach()))
    assert len(logs) == 8

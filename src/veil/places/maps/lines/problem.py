"""The input of mapping from lines: images, matches, and the line of every observation of a track, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, Remedy
from veil.forms import Lines
from veil.geometry.anchors import are_of_halves
from veil.geometry.camera import FRAME_SLACK, Camera, half_extent
from veil.places.maps.lines.tracks import MatchGraph, Tracks, build_tracks

# docs/theory/mapping.md#lines-of-two-halves
HALVES = "the lines of {} hang on the halves of the picture (convergent or parallel); a map of them may be wrong without notice"

# Largest mean share of lines along gravity that more of them may help.
MANY_ALIGNED = 0.7


@dataclass(frozen=True, kw_only=True, eq=False)
class LineView:
    """Camera of an image to map, and the lines that hide its keypoints."""

    camera: Camera
    lines: Lines


@dataclass(frozen=True, kw_only=True, eq=False)
class MappingProblem:
    """Arrays that mapping works on, of all images together; mapping never changes them, but for the tracks between two rounds.

    `views` are the images in the order of `graph.names`, `graph` holds their matches. `lines` (unit normals, normalized image
    plane) and `aligned` (whether the line follows gravity) have one row for each observation of `tracks`. `focal_px`,
    `half_extent` (largest |x| and |y| of a projection inside the image, normalized) and `gravity` (unit vector down in the
    camera frame, NaN without a reading) have one row for each image.
    """

    views: tuple[LineView, ...]
    graph: MatchGraph
    tracks: Tracks
    lines: Float64[np.ndarray, "_ 3"]
    aligned: Bool[np.ndarray, "_"]
    focal_px: Float64[np.ndarray, "_"]
    half_extent: Float64[np.ndarray, "_ 2"]
    gravity: Float64[np.ndarray, "_ 3"]


def mapping_problem(views: Mapping[str, LineView], graph: MatchGraph, tracks: Tracks | None = None) -> MappingProblem:
    """Mapping problem of the images `views` (by name) and the matches `graph`.

    `tracks` are by default those of the strong matches. Raises InputError if an image of the matches is missing or has another
    number of lines.
    """
    for name, count in zip(graph.names, np.diff(graph.starts), strict=True):
        if name not in views or len(views[name].lines) != count:
            raise InputError(f"the matches name {count} features of image {name!r}, which is missing or has another number")
    ordered = tuple(views[name] for name in graph.names)
    tracks = build_tracks(graph) if tracks is None else tracks
    lines, aligned = np.zeros((len(tracks.track), 3)), np.zeros(len(tracks.track), dtype=bool)
    for image, view in enumerate(ordered):
        rows = np.flatnonzero(tracks.image == image)
        lines[rows] = view.lines.coefficients[tracks.feature[rows]]
        aligned[rows] = view.lines.aligned[tracks.feature[rows]]
    return MappingProblem(
        views=ordered,
        graph=graph,
        tracks=tracks,
        lines=lines,
        aligned=aligned,
        focal_px=np.array([view.camera.focal_px for view in ordered]),
        half_extent=np.array([FRAME_SLACK * half_extent(view.camera) for view in ordered]),
        gravity=np.array([np.full(3, np.nan) if view.lines.gravity is None else view.lines.gravity for view in ordered]),
    )


def more_tracks(views: Mapping[str, LineView]) -> tuple[Remedy, ...]:
    """Remedies that may give a map from lines more evidence: more lines along gravity if there are few, and positions."""
    overlap, positions = Remedy("give", "photographs with more overlap"), Remedy("leave out", "Protection.lines")
    if np.mean([view.lines.aligned.mean() for view in views.values()]) > MANY_ALIGNED:
        return overlap, positions
    return overlap, Remedy("raise", "HideInLines.aligned_share"), positions


def of_two_halves(views: Mapping[str, LineView]) -> list[str]:
    """Names of the images most of whose lines beside those along gravity run through the public point of a half."""
    return [
        name
        for name, view in views.items()
        if are_of_halves(view.lines.coefficients.astype(np.float64), view.lines.aligned, view.camera)
    ]

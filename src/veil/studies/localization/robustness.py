"""Lines against points under strain: the same 2D-3D matches for both, fewer and fewer of them right.

The right matches of a held-out query are those that its reference pose confirms, so that neither method chose them.
Some are drawn, and a share of the drawn ones is sent to other points of the map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from veil.geometry.camera import as_colmap
from veil.localization.by_distance import LocalizeOptions, localize_matches
from veil.studies.localization.acceptance_counts import SIGHTS, Sight
from veil.studies.localization.false_acceptance import Question

Case = tuple[str, int, float]
ALL = 0  # a load of all matches
MOST_WRONG = 0.5  # what lines are required to bear; larger shares are shown only


@dataclass(frozen=True, kw_only=True)
class Load:
    """`matches` drawn from a query's right ones (`ALL`: every one), and the share of them that is made wrong."""

    matches: int
    wrong_share: float
    draws: int


def default_loads(draws: int) -> tuple[Load, ...]:
    """What is required, and beyond it 80 % wrong among 200 once."""
    required = [Load(matches=n, wrong_share=share, draws=draws) for n in (200, 500, ALL) for share in (0.0, 0.25, 0.5)]
    return (*required, Load(matches=200, wrong_share=0.8, draws=1))


@dataclass(frozen=True, kw_only=True)
class Strained:
    """One query under one load, in one draw; the error (units of the reference) is infinite if no pose was accepted."""

    place: str
    query: str
    matches: int
    wrong_share: float
    draw: int
    sight: Sight
    position_error: float

    @property
    def case(self) -> Case:
        """Scene and load."""
        return self.place, self.matches, self.wrong_share

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "place": self.place,
            "query": self.query,
            "matches": self.matches,
            "wrong_share": self.wrong_share,
            "draw": self.draw,
            "sight": self.sight,
            "position_error": self.position_error,
        }


def strain(question: Question, loads: Sequence[Load], options: LocalizeOptions) -> list[Strained]:
    """Every load that the query has enough right matches for, each draw from keypoints and from lines."""
    right = right_matches(question, options.max_error_px)
    least = min((load.matches for load in loads if load.matches), default=1)
    found = []
    for load in loads:
        if len(right) < max(load.matches, least):
            continue
        for draw in range(load.draws):
            keypoint_rows, point_rows = loaded(question, right, load, draw)
            for sight in SIGHTS:
                pose = localize_matches(
                    question.features.camera,
                    question.seen(sight, draw),
                    keypoint_rows,
                    point_rows,
                    question.points,
                    views=question.views,
                    options=options,
                )
                errors = question.errors(pose)
                found.append(
                    Strained(
                        place=question.place,
                        query=question.query,
                        matches=load.matches,
                        wrong_share=load.wrong_share,
                        draw=draw,
                        sight=sight,
                        position_error=math.inf if errors is None else errors[0],
                    )
                )
    return found


def right_matches(question: Question, max_error_px: float) -> Int64[np.ndarray, "right"]:
    """Rows of the question's matches that its reference pose confirms, no keypoint and no point twice."""
    assert question.reference is not None and question.reference_from_map is not None
    in_reference = question.reference_from_map.apply(question.points[question.point_rows])
    in_camera = question.reference.apply(in_reference)
    projected = np.asarray(as_colmap(question.features.camera).img_from_cam(in_camera), dtype=np.float64).reshape(-1, 2)
    gap = np.linalg.norm(projected - question.features.keypoints[question.keypoint_rows], axis=1)
    rows = np.flatnonzero((in_camera[:, 2] > 0) & (gap <= max_error_px))
    for column in (question.keypoint_rows, question.point_rows):
        rows = rows[np.unique(column[rows], return_index=True)[1]]
    return np.sort(rows)


def loaded(
    question: Question, right: Int64[np.ndarray, "right"], load: Load, draw: int
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Pairs in random order (nothing ranks them), `wrong_share` of them moved to another point of the map."""
    seed = [draw, load.matches, round(100 * load.wrong_share), *f"{question.place}/{question.query}".encode()]
    random = np.random.default_rng(seed)
    rows = random.permutation(right)[: load.matches or None]
    point_rows = question.point_rows[rows].copy()
    wrong = random.permutation(len(rows))[: round(load.wrong_share * len(rows))]
    count = len(question.points)
    point_rows[wrong] = (point_rows[wrong] + random.integers(1, count, len(wrong))) % count
    return question.keypoint_rows[rows], point_rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Medians under one load: errors from points and from lines, their ratio, and how many found no pose.

    Scenes differ in size and in how good their maps are, and the median of all jumps between them. `ratio_within` therefore
    counts each error in medians of the points' errors of its own scene and load.
    """

    matches: int
    wrong_share: float
    sight: Sight
    count: int
    points_median: float
    lines_median: float
    ratio: float
    ratio_within: float
    refused_points: int
    refused_lines: int

    @property
    def required(self) -> bool:
        """Whether lines are held to this load."""
        return self.wrong_share <= MOST_WRONG

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "matches": self.matches,
            "wrong_share": self.wrong_share,
            "sight": self.sight,
            "count": self.count,
            "points_median": self.points_median,
            "lines_median": self.lines_median,
            "ratio": self.ratio,
            "ratio_within": self.ratio_within,
            "refused_points": self.refused_points,
            "refused_lines": self.refused_lines,
        }


def cells(strained: Sequence[Strained]) -> list[Cell]:
    """One cell a load and kind of lines, and last one for each kind over all required loads (`matches` -1)."""
    found = []
    loads = sorted(
        {(item.matches, item.wrong_share) for item in strained},
        key=lambda load: (load[1] > MOST_WRONG, load[0] or math.inf, load[1]),
    )
    for sight in SIGHTS[1:]:
        for matches, share in loads:
            group = [item for item in strained if (item.matches, item.wrong_share) == (matches, share)]
            found.append(_cell(group, sight, matches, share))
        required = [item for item in strained if item.wrong_share <= MOST_WRONG]
        if required:
            found.append(_cell(required, sight, -1, MOST_WRONG))
    return found


def _cell(group: Sequence[Strained], sight: Sight, matches: int, share: float) -> Cell:
    units = points_medians(group)
    points, lines = ([item for item in group if item.sight == kind] for kind in ("points", sight))
    points_median, lines_median = (float(np.median([item.position_error for item in items])) for items in (points, lines))
    within = [float(np.median([item.position_error / units[item.case] for item in items])) for items in (points, lines)]
    return Cell(
        matches=matches,
        wrong_share=share,
        sight=sight,
        count=len(lines),
        points_median=points_median,
        lines_median=lines_median,
        ratio=_ratio(lines_median, points_median),
        ratio_within=_ratio(within[1], within[0]),
        refused_points=sum(math.isinf(item.position_error) for item in points),
        refused_lines=sum(math.isinf(item.position_error) for item in lines),
    )


def points_medians(strained: Sequence[Strained]) -> dict[Case, float]:
    """Median error of points for each scene and load."""
    errors: dict[Case, list[float]] = {}
    for item in strained:
        if item.sight == "points":
            errors.setdefault(item.case, []).append(item.position_error)
    return {case: float(np.median(values)) for case, values in errors.items()}


def _ratio(above: float, below: float) -> float:
    return above / below if 0 < below < math.inf else math.nan

"""Errors of poses from lines and from points on the same 2D-3D matches, of which a planted share is wrong.

The right matches of a held-out query are those that its reference pose confirms, so that neither method chose them.
Some of them are drawn, and a share of the drawn ones is moved to other points of the map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from veil.geometry.camera import as_colmap
from veil.places.poses.by_distance import localize_matches
from veil.places.poses.options import LocalizeOptions
from veil_lab.studies.localization.acceptance_counts import OBSERVATION_KINDS, ObservationKind
from veil_lab.studies.localization.false_acceptance import MatchedQuery

TrialGroup = tuple[str, int, float]  # place, matches and wrong share
ALL_MATCHES = 0  # the value of `OutlierLevel.matches` that stands for all right matches of a query
REQUIRED_WRONG_SHARE = 0.5  # lines must do as well as points up to this share; larger shares are only shown


@dataclass(frozen=True, kw_only=True)
class OutlierLevel:
    """How many right matches of a query are drawn (`ALL_MATCHES`: every one), which share is made wrong, and how often."""

    matches: int
    wrong_share: float
    draws: int


def default_levels(draws: int) -> tuple[OutlierLevel, ...]:
    """The required levels (200, 500 and all matches with 0, 25 and 50 % wrong), and one draw of 200 matches with 80 % wrong."""
    counts, shares = (200, 500, ALL_MATCHES), (0.0, 0.25, 0.5)
    required = [OutlierLevel(matches=count, wrong_share=share, draws=draws) for count in counts for share in shares]
    return (*required, OutlierLevel(matches=200, wrong_share=0.8, draws=1))


@dataclass(frozen=True, kw_only=True)
class RobustnessTrial:
    """Position error of one query at one outlier level in one draw, from points or from one kind of lines.

    `position_error` is in units of the reference, and infinite if no pose was accepted. The JSON key of `observation` is
    "sight".
    """

    place: str
    query: str
    matches: int
    wrong_share: float
    draw: int
    observation: ObservationKind
    position_error: float

    @property
    def group(self) -> TrialGroup:
        """The trials that are compared with each other: those of the same place and level."""
        return self.place, self.matches, self.wrong_share

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "place": self.place,
            "query": self.query,
            "matches": self.matches,
            "wrong_share": self.wrong_share,
            "draw": self.draw,
            "sight": self.observation,
            "position_error": self.position_error,
        }


def measure_robustness(query: MatchedQuery, levels: Sequence[OutlierLevel], options: LocalizeOptions) -> list[RobustnessTrial]:
    """Trials of a true query at every level for which it has enough right matches; each draw from points and from lines.

    A level of all matches needs as many as the smallest of the other levels.
    """
    right = right_matches(query, options.max_error_px)
    least = min((level.matches for level in levels if level.matches), default=1)
    trials = []
    for level in levels:
        if len(right) < max(level.matches, least):
            continue
        for draw in range(level.draws):
            keypoint_rows, point_rows = with_outliers(query, right, level, draw)
            for observation in OBSERVATION_KINDS:
                pose = localize_matches(
                    query.features.camera,
                    query.observed(observation, draw),
                    keypoint_rows,
                    point_rows,
                    query.points,
                    views=query.views,
                    options=options,
                )
                errors = query.errors(pose)
                trials.append(
                    RobustnessTrial(
                        place=query.place,
                        query=query.name,
                        matches=level.matches,
                        wrong_share=level.wrong_share,
                        draw=draw,
                        observation=observation,
                        position_error=math.inf if errors is None else errors[0],
                    )
                )
    return trials


def right_matches(query: MatchedQuery, max_error_px: float) -> Int64[np.ndarray, "right"]:
    """Indices of the query's matches that its reference pose confirms to `max_error_px`; no keypoint and no point twice."""
    assert query.reference is not None and query.reference_from_map is not None
    in_reference = query.reference_from_map.apply(query.points[query.point_rows])
    in_camera = query.reference.apply(in_reference)
    projected = np.asarray(as_colmap(query.features.camera).img_from_cam(in_camera), dtype=np.float64).reshape(-1, 2)
    gap = np.linalg.norm(projected - query.features.keypoints[query.keypoint_rows], axis=1)
    rows = np.flatnonzero((in_camera[:, 2] > 0) & (gap <= max_error_px))
    for column in (query.keypoint_rows, query.point_rows):
        rows = rows[np.unique(column[rows], return_index=True)[1]]
    return np.sort(rows)


def with_outliers(
    query: MatchedQuery, right: Int64[np.ndarray, "right"], level: OutlierLevel, draw: int
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Matches at an outlier level: rows of keypoints and of points, of which `wrong_share` were moved to another map point.

    `right` holds indices of the query's right matches. The matches are in random order, so that nothing ranks them.
    """
    seed = [draw, level.matches, round(100 * level.wrong_share), *f"{query.place}/{query.name}".encode()]
    random = np.random.default_rng(seed)
    rows = random.permutation(right)[: level.matches or None]
    point_rows = query.point_rows[rows].copy()
    wrong = random.permutation(len(rows))[: round(level.wrong_share * len(rows))]
    count = len(query.points)
    point_rows[wrong] = (point_rows[wrong] + random.integers(1, count, len(wrong))) % count
    return query.keypoint_rows[rows], point_rows


@dataclass(frozen=True, kw_only=True)
class ErrorSummary:
    """Median position errors at one level from points and from one kind of lines, their ratio, and how many got no pose.

    Scenes differ in size and in how good their maps are, and the median of all jumps between them. `ratio_within` therefore
    measures each error in multiples of the median error from points of its own scene and level. `matches` is -1 for the
    summary over all required levels. The JSON key of `observation` is "sight".
    """

    matches: int
    wrong_share: float
    observation: ObservationKind
    count: int
    points_median: float
    lines_median: float
    ratio: float
    ratio_within: float
    refused_points: int
    refused_lines: int

    @property
    def required(self) -> bool:
        """Whether the protocol requires lines to do as well as points at this level."""
        return self.wrong_share <= REQUIRED_WRONG_SHARE

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "matches": self.matches,
            "wrong_share": self.wrong_share,
            "sight": self.observation,
            "count": self.count,
            "points_median": self.points_median,
            "lines_median": self.lines_median,
            "ratio": self.ratio,
            "ratio_within": self.ratio_within,
            "refused_points": self.refused_points,
            "refused_lines": self.refused_lines,
        }


def error_summaries(trials: Sequence[RobustnessTrial]) -> list[ErrorSummary]:
    """Summaries for each kind of lines that has trials: one for each level, and last one over all required levels (-1)."""
    summaries = []
    levels = sorted(
        {(item.matches, item.wrong_share) for item in trials},
        key=lambda level: (level[1] > REQUIRED_WRONG_SHARE, level[0] or math.inf, level[1]),
    )
    tried = {item.observation for item in trials}
    for observation in (kind for kind in OBSERVATION_KINDS[1:] if kind in tried):
        for matches, share in levels:
            group = [item for item in trials if (item.matches, item.wrong_share) == (matches, share)]
            summaries.append(_summary(group, observation, matches, share))
        required = [item for item in trials if item.wrong_share <= REQUIRED_WRONG_SHARE]
        if required:
            summaries.append(_summary(required, observation, -1, REQUIRED_WRONG_SHARE))
    return summaries


def _summary(group: Sequence[RobustnessTrial], observation: ObservationKind, matches: int, share: float) -> ErrorSummary:
    units = points_medians(group)
    points, lines = ([item for item in group if item.observation == kind] for kind in ("points", observation))
    points_median, lines_median = (float(np.median([item.position_error for item in items])) for items in (points, lines))
    within = [float(np.median([item.position_error / units[item.group] for item in items])) for items in (points, lines)]
    return ErrorSummary(
        matches=matches,
        wrong_share=share,
        observation=observation,
        count=len(lines),
        points_median=points_median,
        lines_median=lines_median,
        ratio=_ratio(lines_median, points_median),
        ratio_within=_ratio(within[1], within[0]),
        refused_points=sum(math.isinf(item.position_error) for item in points),
        refused_lines=sum(math.isinf(item.position_error) for item in lines),
    )


def points_medians(trials: Sequence[RobustnessTrial]) -> dict[TrialGroup, float]:
    """Median position error from points for each place and level."""
    errors: dict[TrialGroup, list[float]] = {}
    for item in trials:
        if item.observation == "points":
            errors.setdefault(item.group, []).append(item.position_error)
    return {group: float(np.median(values)) for group, values in errors.items()}


def _ratio(above: float, below: float) -> float:
    return above / below if 0 < below < math.inf else math.nan

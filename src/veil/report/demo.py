"""The HTML page of the demo: what was sent, what the server answered, and what lifting does not protect."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.geometry.rigid import Rigid
from veil.ldp.composition import composed_epsilon
from veil.ldp.rounding import outward, outward_percent
from veil.places.maps.lines import LineView
from veil.places.poses.answer import Localization
from veil.report import pictures
from veil.report.demo_forms import four_ways
from veil.report.maps_from_above import maps_figure
from veil.report.page_templates import page_template
from veil.scene import Scene
from veil.trials.form_answers import Variant
from veil.trials.held_out import DELTA, TrialOutcome
from veil.trials.reconstruction_run import Run
from veil.trials.tile_exits import ExitStudy
from veil.version import __version__

ReadRgb = Callable[[str], np.ndarray]  # pixels (rows, columns, 3) of a photograph by its name


@dataclass(frozen=True, kw_only=True, eq=False)
class LineMapSection:
    """The page's section on mapping from lines alone: the run, its reference poses, and the lines that one photograph sent.

    `name` is that photograph's, `view` its camera and lines.
    """

    run: Run
    reference: Mapping[str, Rigid]
    name: str
    view: LineView


def page(
    outcomes: Sequence[TrialOutcome],
    strangers: Sequence[TrialOutcome],
    *,
    drawn: np.ndarray | None,
    extent: float,
    tiles: ExitStudy,
    read_rgb: ReadRgb,
    repeat: dict,
    lines: LineMapSection,
    seconds: float,
    view: str | None = None,
) -> str:
    """The self-contained HTML page of the demo, from outcomes of held-out photographs and of `strangers`, of another place.

    `drawn` is the picture that an attacker draws of the first photograph, None if no attack was possible.
    `extent` is the scene's size in reference units, `tiles` are the same photographs localized in tiles.
    `repeat` holds the numbers on releasing one photograph twice, with fresh and with memoized draws (`veil.demo`).
    `read_rgb` reads photographs for pictures. `view` is the name of the file beside it that shows the map in three dimensions.
    """
    variants = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    rows = [_summary(variant, outcomes, strangers, extent) for variant in variants]
    queries = [_query(name, outcomes, read_rgb) for name in dict.fromkeys(o.query.name for o in outcomes)]
    errors = [
        [100 * o.position_error / extent for o in outcomes if o.variant == v and o.position_error not in (None, math.inf)]
        for v in variants
    ]
    return page_template("demo.html").render(
        version=__version__,
        rows=rows,
        first=[row for row in rows if row["is_first"]],
        queries=queries,
        drawn=None if drawn is None else pictures.photograph(drawn),
        strangers=_stranger_rows(strangers),
        chart=pictures.error_chart([variant.label for variant in variants], errors),
        ways=four_ways(outcomes, strangers, tiles, extent),
        details=[_detail(outcome, extent) for outcome in (*outcomes, *strangers)],
        repeat=repeat,
        lines=_lines(lines, extent, read_rgb),
        words=_words(outcomes),
        seconds=seconds,
        view=view,
        map_images=next(len(o.scene.images) for o in outcomes if isinstance(o.scene, Scene)),
    )


def _summary(variant: Variant, outcomes: Sequence[TrialOutcome], strangers: Sequence[TrialOutcome], extent: float) -> dict:
    """Texts of the table's row of one variant."""
    own = [o for o in outcomes if o.variant == variant]
    localized = [o for o in own if isinstance(o.pose, Localization)]
    others = [o for o in strangers if o.variant == variant]
    errors = [o.position_error for o in localized if o.position_error is not None]
    turns = [o.rotation_error_deg for o in localized if o.rotation_error_deg is not None]
    return {
        "label": variant.label,
        "name": "words" if variant.mechanism else "subspaces" if variant.profile else "raw features",
        "is_first": variant.mechanism is not None or variant.profile is None or _is_sent_by_default(variant),
        "is_raw": variant.profile is None and variant.mechanism is None,
        "is_default": _is_sent_by_default(variant),
        "localized": f"{len(localized)} of {len(own)}",
        "position": f"{100 * float(np.median(errors)) / extent:.2f} %" if errors else "none",
        "rotation": f"{float(np.median(turns)):.2f}°" if turns else "none",
        "inliers": int(np.median([o.pose.inliers for o in own])),
        "upload": f"{np.median([o.upload_bytes for o in own]) / 1e3:.0f} kB",
        "seconds": f"{np.median([o.seconds for o in own]):.1f} s",
        "refused": f"{sum(not isinstance(o.pose, Localization) for o in others)} of {len(others)}" if others else "",
    }


def _is_sent_by_default(variant: Variant) -> bool:
    """Whether a variant is veil's default, hardened subspaces with positions, on the public map."""
    return (
        variant.profile is not None and variant.profile.name == "hardened" and variant.distance == "p2s" and not variant.lines
    )


def _words(outcomes: Sequence[TrialOutcome]) -> dict:
    """Texts about the words of a query: the mechanism, and epsilon over all features of the photograph."""
    outcome = next(o for o in outcomes if o.variant.mechanism is not None)
    mechanism = outcome.variant.mechanism
    assert mechanism is not None
    features = len(outcome.query.features)
    return {
        "words": f"{mechanism.dictionary_size:,}",
        "epsilon": outward(mechanism.epsilon, 6),
        "m": mechanism.m,
        "truth": f"{outward_percent(float(mechanism.truth))} %",
        "posterior": f"{outward_percent(mechanism.posterior)} %",
        "features": f"{features:,}",
        "image": outward(composed_epsilon({mechanism: features}, DELTA)),
        "delta": f"{DELTA:g}",
    }


def _query(name: str, outcomes: Sequence[TrialOutcome], read_rgb: ReadRgb) -> dict:
    """Pictures and texts of one query through the default profile and a public map."""
    own = [o for o in outcomes if o.query.name == name]
    shown = next((o for o in own if o.variant.profile and o.variant.profile.name == "hardened"), own[0])
    rgb = read_rgb(name)
    result = {
        "name": name,
        "photo": pictures.photograph(rgb),
        "server": pictures.server_view(rgb.shape[1], rgb.shape[0], shown.keypoints),
        "label": shown.variant.label,
        "matches": None,
        "matched_with": "",
        "inliers": shown.pose.inliers,
    }
    if isinstance(shown.pose, Localization):
        best, query_xy, mapped_xy = _best_view(shown)
        result["matches"] = pictures.matches_picture(rgb, read_rgb(best), query_xy, mapped_xy)
        result["matched_with"] = best
    return result


def _best_view(outcome: TrialOutcome) -> tuple[str, np.ndarray, np.ndarray]:
    """Name of the map image that sees most inlier points, with these points' keypoints (pixels) in the query and in it."""
    localization = outcome.pose
    assert isinstance(localization, Localization) and isinstance(outcome.scene, Scene)
    inliers = set(localization.point_rows.tolist())
    counts = Counter({n: len(inliers & set(i.point_rows.tolist())) for n, i in outcome.scene.images.items()})
    best = counts.most_common(1)[0][0]
    image = outcome.scene.images[best]
    where = {int(point): row for row, point in enumerate(image.point_rows)}
    pairs = [
        (q, where[int(p)]) for q, p in zip(localization.keypoint_rows, localization.point_rows, strict=True) if int(p) in where
    ]
    query_xy = outcome.keypoints[[q for q, _ in pairs]]
    mapped_xy = image.keypoints[[r for _, r in pairs]]
    return best, query_xy, mapped_xy


def _lines(section: LineMapSection, extent: float, read_rgb: ReadRgb) -> dict:
    """Texts and pictures of the map from lines."""
    run, rgb = section.run, read_rgb(section.name)
    result = {
        "registered": f"{run.registered} of {run.total}",
        "reason": run.reason,
        "points": len(run.points),
        "position": f"{100 * run.position.median / extent:.2f} %" if run.position else "none",
        "worst": f"{100 * run.position.max / extent:.2f} %" if run.position else "none",
        "rotation": f"{run.pairwise_rotation_deg:.2f}°" if run.pairwise_rotation_deg is not None else "none",
        "name": section.name,
        "photo": pictures.photograph(rgb),
        "sent": pictures.lines_view(section.view.camera, section.view.lines),
        "named": None,
        "map": None,
    }
    if run.leakage is not None and run.position is not None:
        share, median = run.leakage.images[section.name]
        result |= {
            "named": pictures.server_view(rgb.shape[1], rgb.shape[0], run.leakage.positions[section.name]),
            "named_share": f"{share:.0%}",
            "named_px": "" if median is None else f"{median:.1f}",
            "share": f"{run.leakage.share:.0%}",
            "median_px": f"{run.leakage.median_px:.1f}",
            "unchecked": f"{run.leakage.share_unchecked:.0%}",
            "map": pictures.figure_picture(maps_figure([run], {run.scene: section.reference})),
        }
    return result


def _stranger_rows(strangers: Sequence[TrialOutcome]) -> list[dict]:
    """Texts of the table of photographs of another place, a row for each photograph."""
    names = dict.fromkeys(o.query.name for o in strangers)
    return [
        {
            "name": name,
            "refused": sum(not isinstance(o.pose, Localization) for o in strangers if o.query.name == name),
            "tried": sum(o.query.name == name for o in strangers),
            "most_inliers": max(o.pose.inliers for o in strangers if o.query.name == name),
        }
        for name in names
    ]


def _detail(outcome: TrialOutcome, extent: float) -> dict:
    """Texts of one row of the table of all outcomes."""
    row = outcome.as_json()
    return {
        **row,
        "label": outcome.variant.label,
        "position": "" if row["position_error"] is None else f"{100 * row['position_error'] / extent:.3f} %",
        "rotation": "" if row["rotation_error_deg"] is None else f"{row['rotation_error_deg']:.3f}°",
    }

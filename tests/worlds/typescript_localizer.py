"""Vectors of the localizer in TypeScript: inputs and outputs of each step of a localization in tiles, as Python computes them.

`python -m worlds.typescript_localizer`, run in `tests/`, writes them to `clients/typescript/tests/localizer.json`, and
`tests/client/test_typescript_localizer.py` compares that file with what this module computes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from veil.codebooks.mirror import SIFT_MIRRORED
from veil.features import Features, in_eight_bits
from veil.geometry.camera import GIVEN, GUESS, MODELS, Camera, FocalPrior, as_colmap
from veil.geometry.earth import EarthFrame
from veil.geometry.free_calibration import FreeCamera, Sights
from veil.geometry.georeference import Georeference, basic_quaternion
from veil.geometry.rigid import Rigid
from veil.geometry.robust.significance import P3P, P4PF, point_agreement, pose_log10_nfa
from veil.geometry.similarity import Similarity
from veil.geometry.solvers.p3p import MAX_POSES, three_point_poses
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import ANY_REACH, coin, contradicts_calibration, pictured, weigh
from veil.places.poses.joint import contradicted_focal, fitted, settled
from veil.places.poses.judge import weakest_rival
from veil.places.poses.matches import Estimate, MatchedPoints
from veil.places.poses.mirror import mirrored_keypoints
from veil.places.poses.options import LocalizeOptions
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, matched, wanted_tiles
from veil.tiles.fetching import proved_tile
from veil.tiles.manifest import encode_manifest
from veil.tiles.union import TilePoints, united
from worlds import generator, lens, project
from worlds.tile_streets import Street, street, visible
from worlds.typescript_messages import text

PATH = Path(__file__).parents[2] / "clients" / "typescript" / "tests" / "localizer.json"
TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
PLACE = Georeference(
    frame=EarthFrame(latitude_deg=48.0, longitude_deg=11.0, height_m=500.0),
    enu_from_map=Similarity(scale=4.0, rotation=TURN, translation=np.array([10.0, -20.0, 5.0])),
    median_error_m=0.5,
    largest_error_m=1.0,
    agreeing=np.ones(4, dtype=bool),
    uses_gravity=False,
)
OPTIONS = LocalizeOptions()


def place() -> Street:
    """The street that the vectors' map shows."""
    return street("localizer", cameras=8, density=24)


@cache
def made() -> CutMap:
    return cut(place().scene, CutOptions(tile_bytes=9_000, axes=48, words=64, asked=2), place=PLACE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A query by name; `near` is where the device is about."""

    name: str
    features: Features
    near: np.ndarray | None = None


def in_bytes(features: Features) -> Features:
    """The features with descriptors of 8 bits, as an extractor gives them."""
    return replace(features, descriptors=in_eight_bits(features.descriptors))


def joined(parts: Sequence[Features]) -> Features:
    """The features of several photographs as those of the first one's."""
    return replace(
        parts[0],
        keypoints=np.concatenate([part.keypoints for part in parts]),
        descriptors=np.concatenate([part.descriptors for part in parts]),
    )


def turned_over(features: Features) -> Features:
    """Features of the photograph in a mirror."""
    return replace(
        features,
        keypoints=mirrored_keypoints(features.camera, features.keypoints),
        descriptors=np.ascontiguousarray(features.descriptors[:, SIFT_MIRRORED]),
    )


def printed(features: Features) -> Features:
    """Features of a photograph of a print, which is held in half of the picture."""
    size = np.array([features.camera.width_px, features.camera.height_px])
    return replace(features, keypoints=(size / 4 + features.keypoints / 2).astype(np.float32))


def bent(features: Features) -> Features:
    """The same photograph through a lens that bends the picture."""
    camera = replace(features.camera, model="OPENCV", params=(*features.camera.params, -0.08, 0.03, 0.0008, -0.0006))
    rays = as_colmap(features.camera).cam_from_img(features.keypoints.astype(np.float64))
    xy = as_colmap(camera).img_from_cam(np.hstack([rays, np.ones((len(rays), 1))]))
    return replace(features, camera=camera, keypoints=np.asarray(xy).astype(np.float32))


def declared(features: Features, factor: float, focal: FocalPrior) -> Features:
    """The features with another focal length than the true one."""
    fx, fy, *rest = features.camera.params
    return replace(features, camera=replace(features.camera, params=(factor * fx, factor * fy, *rest), focal=focal))


def from_behind() -> Features:
    """Features as a camera behind the facade would see them, from where no image of the map saw its points."""
    pose = Rigid(rotation=np.diag([-1.0, 1.0, -1.0]), translation=np.array([4.0, 0.0, 10.0]))
    first = place().query(4.0)[0]
    seen = visible(pose, place().scene.points)
    return in_bytes(
        replace(
            first,
            keypoints=project(pose, place().scene.points[seen], first.camera).astype(np.float32),
            descriptors=place().descriptors[seen].astype(np.float32),
        )
    )


@cache
def asked() -> list[Asked]:
    """Queries that get a pose, and one of each kind that gets none."""
    first, second, third = (
        in_bytes(place().query(x, turn, clutter=20)[0]) for x, turn in ((1.3, 0.1), (4.6, -0.2), (6.2, 0.15))
    )
    noisy = in_bytes(place().query(2.4, 0.05, noise_px=2.0, clutter=150)[0])
    away = in_bytes(street("elsewhere", cameras=3, density=24).query(1.0)[0])
    some = generator("some").permutation(len(first))
    return [
        Asked(name="as taken", features=first),
        Asked(name="near a place", features=second, near=np.array([4.0, 0.0, 0.0])),
        Asked(name="noise and clutter", features=noisy),
        Asked(name="a bent picture", features=bent(third)),
        Asked(name="a rough focal length", features=declared(third, 1.06, FocalPrior(origin="EXIF", deviation=0.05))),
        Asked(name="an unknown focal length", features=declared(first, 1.5, GUESS)),
        Asked(name="a wrong focal length", features=declared(first, 1.3, GIVEN)),
        Asked(name="another place", features=away),
        Asked(name="in a mirror", features=turned_over(first)),
        Asked(name="better in a mirror", features=joined([turned_over(first), second.take(np.arange(25))])),
        Asked(name="two photographs", features=joined([first.take(some[:60]), third.take(np.arange(60))])),
        Asked(name="a print", features=printed(second)),
        Asked(name="from behind", features=from_behind()),
        Asked(name="few features", features=first.take(some[:10])),
        Asked(name="few inliers", features=joined([away, first.take(some[:17])])),
    ]


def camera_json(camera: Camera) -> dict[str, Any]:
    """A camera as the client has it."""
    return {
        "model": camera.model,
        "widthPx": camera.width_px,
        "heightPx": camera.height_px,
        "params": list(camera.params),
        "focalDeviation": None if camera.focal.origin == "guess" else camera.focal.deviation,
    }


def features_json(features: Features) -> dict[str, Any]:
    return {
        "keypoints": text(features.keypoints.astype("<f4").tobytes()),
        "descriptors": text(features.descriptors.tobytes()),
        "camera": camera_json(features.camera),
    }


def pose_json(pose: Rigid) -> dict[str, Any]:
    return {"rotation": pose.rotation.ravel().tolist(), "translation": pose.translation.tolist()}


def answer_json(answer: Localization | NoPose) -> dict[str, Any]:
    """The answer to a query."""
    facts = {"inliers": answer.inliers, "correspondences": answer.correspondences, "log10Nfa": bounded(answer.log10_nfa)}
    if isinstance(answer, NoPose):
        return {"status": "no pose", "reason": answer.reason, **facts}
    assert answer.covariance is not None
    return {
        "status": "localized",
        **facts,
        "camFromWorld": pose_json(answer.cam_from_world),
        "covariance": answer.covariance.ravel().tolist(),
        "turnDeviationDeg": answer.turn_deviation_deg,
        "focal": answer.camera.focal_px,
        "focalDeviation": answer.camera.focal.deviation,
        "keypointRows": answer.keypoint_rows.tolist(),
        "pointRows": answer.point_rows.tolist(),
        "geopose": basic_quaternion(PLACE, answer.cam_from_world),
    }


def bounded(value: float) -> float | None:
    """A number for JSON, which has no infinity."""
    return value if math.isfinite(value) else None


def points_of(query: Asked) -> tuple[list[int], TilePoints]:
    """The tiles that a query asks for, and their points."""
    wanted = wanted_tiles(made().manifest, query.features, near=query.near)
    tiles = [proved_tile(made().manifest, index, made().records[index].tobytes()) for index in wanted]
    return wanted, united(tiles, made().manifest.coding)


def queries() -> list[dict[str, Any]]:
    """Each query with its tiles, matches and answer."""
    rows = []
    for query in asked():
        wanted, points = points_of(query)
        keypoint_rows, point_rows = matched(made().manifest.coding.compressed(publish(query.features)), points, OPTIONS)
        tiles = [proved_tile(made().manifest, index, made().records[index].tobytes()) for index in wanted]
        rows.append(
            {
                "name": query.name,
                **features_json(query.features),
                "near": None if query.near is None else query.near.tolist(),
                "wanted": wanted,
                "points": len(points.points),
                "matches": [keypoint_rows.tolist(), point_rows.tolist()],
                "answer": answer_json(localize_in_tiles(query.features, made().manifest, tiles)),
            }
        )
    return rows


def steps() -> list[dict[str, Any]]:
    """Steps from a pose that a search might give: evidence, fits, and what a camera could have seen."""
    rows = []
    for query in asked():
        if query.name not in ("as taken", "noise and clutter", "a bent picture", "a rough focal length", "a print"):
            continue
        _, points = points_of(query)
        pairs = matched(made().manifest.coding.compressed(publish(query.features)), points, OPTIONS)
        one = MatchedPoints(
            camera=query.features.camera,
            observations=query.features.keypoints,
            keypoint_rows=pairs[0],
            point_rows=pairs[1],
            points=points.points,
            max_error_px=OPTIONS.max_error_px,
            seed=0,
        )
        start = one.estimate()
        assert start is not None
        best = settled(one, start)
        seen, unchecked = weigh(one, best, points.views), weigh(one, best, None)
        rows.append(
            {
                "name": query.name,
                "start": pose_json(start.pose),
                "fitted": fit_json(fitted(one, start)),
                "settled": fit_json(best),
                "log10Nfa": bounded(seen.log10_nfa),
                "rows": seen.rows.tolist(),
                "uncheckedLog10Nfa": bounded(unchecked.log10_nfa),
                "magnification": points.views.magnification(
                    best.camera, best.pose, points.points, one.point_rows[unchecked.rows]
                ),
                "contradictsCalibration": contradicts_calibration(one, best, unchecked.rows),
                "pictured": pictured(one, best, unchecked, points.views),
                "contradictsFocal": contradicted_focal(one, best) is not None,
            }
        )
    return rows


def fit_json(estimate: Estimate) -> dict[str, Any]:
    """The pose of a fit, its focal length and its covariance."""
    fit = estimate.fit
    assert fit is not None and np.isfinite(fit.covariance).all()
    facts = {"focal": estimate.camera.focal_px, "covariance": fit.covariance.ravel().tolist(), "noise": fit.noise}
    return {**pose_json(estimate.pose), **facts}


def three_points() -> list[dict[str, Any]]:
    """Samples of three points with all of their poses."""
    rows = []
    for case in range(60):
        random = generator(f"three points {case}")
        points = np.array([0, 0, 5]) + random.normal(size=(3, 3))
        if case % 10 == 9:
            points[2] = points[0] + 2 * (points[1] - points[0])  # on a line
        rays = points + 0.1 * random.normal(size=(3, 3))
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        rotations, translations = np.empty((MAX_POSES, 3, 3)), np.empty((MAX_POSES, 3))
        count = three_point_poses(rays, points, rotations, translations)
        poses = [pose_json(Rigid(rotation=rotations[k], translation=translations[k])) for k in range(count)]
        rows.append({"rays": rays.ravel().tolist(), "points": points.ravel().tolist(), "poses": poses})
    return rows


def chances() -> dict[str, Any]:
    """Numbers of false alarms, tosses of a coin, and the weakest rival."""
    camera = asked()[0].features.camera
    cases = [(20, 100, 0.01), (15, 1500, 0.003), (700, 900, 0.2), (4, 5, 0.5), (3, 9, 0.1)]
    return {
        "nfa": [
            [
                inliers,
                matches,
                agreement,
                sampling.size,
                sampling.poses,
                bounded(pose_log10_nfa(inliers, matches, agreement, sampling)),
            ]
            for inliers, matches, agreement in cases
            for sampling in (P3P, P4PF)
        ],
        "agreement": [[error, point_agreement(camera, error)] for error in (1.0, 8.0, 1000.0)],
        "coin": [[more, less, coin(more, less)] for more, less in ((0, 5), (5, 5), (20, 4), (300, 200), (40, 0))],
        "rivals": [[inliers, weakest_rival(inliers)] for inliers in (0, 8, 30, 200, 1500)],
    }


def lenses() -> list[dict[str, Any]]:
    """Points in the frame of a camera of each model, their pixels, and the points of the normalized plane of these."""
    rows = []
    for model in MODELS:
        camera = lens(model)
        seen = np.array([[x, y, 2.0] for x in (-0.9, 0.1, 0.8) for y in (-0.6, 0.0, 0.5)])
        pixels = np.asarray(as_colmap(camera).img_from_cam(seen), dtype=np.float64)
        plane = np.asarray(as_colmap(camera).cam_from_img(pixels), dtype=np.float64)
        arrays = {"seen": seen, "pixels": pixels, "plane": plane}
        rows.append({"camera": camera_json(camera), **{name: array.ravel().tolist() for name, array in arrays.items()}})
    return rows


def calibrations() -> dict[str, Any]:
    """The fit of a free calibration to planted sights, which another calibration than the declared one gave."""
    random = generator("free calibration")
    points = np.array([0, 0, 6]) + random.normal(size=(80, 3))
    xy = points[:, :2] / points[:, 2:] * [1.3, 1.25] + [0.1, -0.05] + 0.001 * random.normal(size=(80, 2))
    sights = Sights(points=points, seen=np.hstack([xy, np.ones((80, 1))]), as_lines=False)
    start = FreeCamera(pose=Rigid(rotation=np.eye(3), translation=np.array([0.05, 0.0, 0.2])))
    fit = sights.fitted(start, ANY_REACH)
    return {
        "points": points.ravel().tolist(),
        "seen": xy.ravel().tolist(),
        "start": pose_json(start.pose),
        "residuals": sights.residuals(start).tolist(),
        "fitted": {**pose_json(fit.pose), "offsets": fit.offsets.tolist()},
        "misfit": float(sights.residuals(fit).mean()),
    }


def vectors() -> dict[str, Any]:
    """All vectors."""
    described, binary, version = encode_manifest(made().manifest)
    return {
        "manifest": described.decode(),
        "binary": text(binary),
        "version": version,
        "records": [text(record.tobytes()) for record in made().records],
        "threePoints": three_points(),
        "chances": chances(),
        "lenses": lenses(),
        "calibration": calibrations(),
        "queries": queries(),
        "steps": steps(),
    }


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in vectors().items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")

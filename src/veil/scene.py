"""Map of a place: images with cameras and poses, points, and which released feature observes which point.

Its check says how sure it is: numbers for and against maps of positions and of lines, and when they are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError, Remedy
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.geometry.views import MapViews, map_views
from veil.json_records.values import Reasons
from veil.one_line import one_line
from veil.space import Space

# Share of a pair's matches that a map must explain to explain the pair.
EXPLAINED = 0.5
# A map is refused below this share of explained matches, above this share of contradicting pairs, or above this uncertainty (as
# a share of the extent), which is that of a map that explains all its matches: less may be uncertain where some are wrong.
# It is this part of it at least.
MIN_MATCHES, MAX_CONTRADICTING, MAX_UNCERTAINTY, LEAST_TRUST = 0.7, 0.35, 0.04, 0.25
# A map whose uncertainty is larger is noted to know its camera positions badly, or its focal lengths.
VAGUE, VAGUE_FOCAL = 0.02, 0.1
# A map is refused if the median angle between the rotations of its pairs and its own is larger: its cameras look elsewhere.
MAX_ROTATION_DEG = 10.0
# Fewer common points than this between two parts fix no scale between them that chance could not have given.
MIN_NECK = 20
# Readings of gravity disagree if they are off by more degrees than this; at least this share must agree.
GRAVITY_DEG, MIN_GRAVITY = 15.0, 0.5
# Lines beyond the number of unknowns that a map must have; a wrong map is bent to fit few more lines than it has unknowns.
MIN_CHECKS = 30
MIN_CLOSE, MAX_LINE_UNCERTAINTY = 0.5, 0.02


class _SometimesInContradictedFocalJson(TypedDict, total=False):
    names: list[str]
    untested: bool


class ContradictedFocalJson(_SometimesInContradictedFocalJson):
    """Focal length in pixels that the photographs of a map contradict, or that is not believed."""

    images: int
    given_px: float
    refined_px: float


class _SometimesInChecksJson(TypedDict, total=False):
    removed: int
    focal_deviation: float
    contradicted_focals: list[ContradictedFocalJson]


class MapCheckJson(_SometimesInChecksJson):
    """Numbers for and against a map of positions."""

    pairs: int
    explained_pairs: int
    contradicting_pairs: int
    explained_matches: float
    neck: int | None
    uncertainty: float | None
    step_ratio: float | None
    rotation_deg: float | None
    gravity_deg: float | None
    gravity_agreeing: float | None
    left_out: Reasons


@dataclass(frozen=True, kw_only=True)
class ContradictedFocal:
    """Focal length `given_px` (pixels) of a number of `images` that their map contradicts; it was refined to `refined_px`.

    `names` are those of the images that are in the map still. It is `untested` if the map cannot tell, and it was not believed
    because more images contradict theirs than confirm it.
    """

    images: int
    given_px: float
    refined_px: float
    names: tuple[str, ...] = ()
    untested: bool = False

    __repr__ = one_line

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> ContradictedFocal:
        """Inverse of `as_json`. Raises TypeError for another record."""
        return ContradictedFocal(**{**record, "names": tuple(record.get("names", ()))})

    def as_json(self) -> ContradictedFocalJson:
        """JSON record, as docs/reference/json.md describes it."""
        record: ContradictedFocalJson = {"images": self.images, "given_px": self.given_px, "refined_px": self.refined_px}
        if self.names:
            record["names"] = list(self.names)
        if self.untested:
            record["untested"] = True
        return record

    def described(self) -> str:
        """Clause on the contradiction, for people."""
        many = f"{self.images} images have" if self.images > 1 else "1 image has"
        given = f"{self.given_px:.0f} px given" + (", which nothing there tests" if self.untested else "")
        return f"{many} another focal length than the {given}, {self.refined_px:.0f} px by the map"

    @property
    def reason(self) -> str:
        """Why the map was made with another focal length, as a sentence about its images."""
        if self.untested:
            return (
                f"the map cannot test the focal length of {self.given_px:.0f} px. More images contradict theirs than confirm "
                f"it, so it was not believed and is {self.refined_px:.0f} px in the map"
            )
        return (
            f"the map contradicts the focal length of {self.given_px:.0f} px, as after a crop or a zoom; it is "
            f"{self.refined_px:.0f} px in the map"
        )

    @property
    def remedy(self) -> tuple[Remedy, ...]:
        """What to do if the map is wrong about the focal length."""
        return (Remedy("give", "the right cameras of the others") if self.untested else Remedy("give", "Features.camera"),)


@dataclass(frozen=True, kw_only=True)
class MapCheck:
    """Numbers that speak for and against a map of positions (docs/theory/mapping.md says how each of them is made).

    `pairs` verified pairs of its images, of which it explains `explained_pairs`; `contradicting_pairs` of the others are
    confirmed by a cycle of rotations. `explained_matches` is the share of all their matches. `rotation_deg` is the median angle
    between the rotation of a pair by itself and in the map. `neck` is the number of common points that hold its most loosely
    joined parts together; `uncertainty` how well camera centers are known, as a share of their extent;
    `step_ratio` the longest way from a camera to its nearest one over the median. `gravity_deg` is the median angle between
    readings of gravity and their middle in the map, `gravity_agreeing` the share within 15 degrees. None stands for a number
    that is not known. `left_out` says why images are not in the map, by name. `removed` counts images that were taken out of
    the map since: what is said of pairs, rotations and gravity is then of the map before. `focal_deviation` is the relative
    standard deviation of the focal length in the middle of the images. `contradicted_focals` are focal lengths of images that
    the map contradicts; it was made with others.
    """

    pairs: int
    explained_pairs: int
    contradicting_pairs: int
    explained_matches: float
    neck: int | None
    uncertainty: float | None
    step_ratio: float | None
    rotation_deg: float | None = None
    gravity_deg: float | None = None
    gravity_agreeing: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    removed: int = 0
    focal_deviation: float | None = None
    contradicted_focals: tuple[ContradictedFocal, ...] = ()

    __repr__ = one_line

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> MapCheck:
        """Check from its JSON record, the inverse of `as_json`. Raises ValueError or TypeError for another record."""
        try:
            check = MapCheck(
                pairs=record["pairs"],
                explained_pairs=record["explained_pairs"],
                contradicting_pairs=record["contradicting_pairs"],
                explained_matches=record["explained_matches"],
                neck=record["neck"],
                uncertainty=record["uncertainty"],
                step_ratio=record["step_ratio"],
                rotation_deg=record.get("rotation_deg"),
                gravity_deg=record.get("gravity_deg"),
                gravity_agreeing=record.get("gravity_agreeing"),
                left_out=record.get("left_out", {}),
                removed=record.get("removed", 0),
                focal_deviation=record.get("focal_deviation"),
                contradicted_focals=tuple(ContradictedFocal.from_json(item) for item in record.get("contradicted_focals", ())),
            )
        except KeyError as error:
            raise ValueError(f"it lacks {error}") from None
        if unknown := record.keys() - check.as_json().keys() - _SometimesInChecksJson.__annotations__.keys():
            raise ValueError(f"a check has no {', '.join(sorted(unknown))}")
        return check

    def as_json(self) -> MapCheckJson:
        """JSON record of the check, as docs/reference/json.md describes it.

        It has `removed` only where images were, `focal_deviation` where it is known, and `contradicted_focals` where there are
        any.
        """
        record: MapCheckJson = {
            "pairs": self.pairs,
            "explained_pairs": self.explained_pairs,
            "contradicting_pairs": self.contradicting_pairs,
            "explained_matches": self.explained_matches,
            "neck": self.neck,
            "uncertainty": self.uncertainty,
            "step_ratio": self.step_ratio,
            "rotation_deg": self.rotation_deg,
            "gravity_deg": self.gravity_deg,
            "gravity_agreeing": self.gravity_agreeing,
            "left_out": dict(self.left_out),
        }
        if self.removed:
            record["removed"] = self.removed
        if self.focal_deviation is not None:
            record["focal_deviation"] = self.focal_deviation
        if self.contradicted_focals:
            record["contradicted_focals"] = [item.as_json() for item in self.contradicted_focals]
        return record

    def described(self) -> str:
        """Summary of the check in one line, for people."""
        parts = [
            f"explains {self.explained_pairs} of {self.pairs} verified pairs and {self.explained_matches:.1%} of their matches"
        ]
        if self.uncertainty is not None:
            parts.append(f"its camera positions are {self._known}")
        if self.neck is not None:
            parts.append(f"at least {self.neck} points hold any two parts together")
        if self.rotation_deg is not None:
            parts.append(f"pairs turn by {self.rotation_deg:.2f} deg from it")
        if self.gravity_deg is not None and self.gravity_agreeing is not None:
            parts.append(f"gravity agrees to {self.gravity_deg:.1f} deg in {self.gravity_agreeing:.0%} of its readings")
        if self.step_ratio is not None:
            parts.append(f"its longest step is {self.step_ratio:.1f} times the median")
        if self.focal_deviation is not None:
            parts.append(f"focal lengths are known to {self.focal_deviation:.0%}")
        parts += [item.described() for item in self.contradicted_focals]
        if self.removed:
            parts.append(f"{self.removed} images were removed since, and its pairs are those of the map before")
        return "; ".join(parts)

    @property
    def _known(self) -> str:
        """How well camera positions are known, for people."""
        finite = self.uncertainty is not None and math.isfinite(self.uncertainty)
        return f"known to {self.uncertainty:.1%} of their extent" if finite else "not determined"

    @property
    def vague(self) -> str | None:
        """Sentence on what a map that is not refused knows badly, its camera positions or focal lengths; None for neither."""
        if self.uncertainty is not None and self.uncertainty > VAGUE:
            return f"camera positions of this map are {self._known}, and poses in it no better"
        if self.focal_deviation is not None and self.focal_deviation > VAGUE_FOCAL:
            known = f"focal lengths of this map are known to {self.focal_deviation:.0%}"
            return f"{known}, and distances to its points and turns between its cameras no better"
        return None

    @property
    def doubts(self) -> list[str]:
        """Reasons to refuse the map, as sentences; empty if nothing speaks against it."""
        reasons = []
        if self.pairs == 0:
            reasons.append("no pair of images is verified within it")
        elif self.contradicting_pairs > MAX_CONTRADICTING * self.pairs or not self.explained_matches >= MIN_MATCHES:
            reasons.append(
                f"it contradicts its own pairs: it explains {self.explained_pairs} of {self.pairs} and "
                f"{self.explained_matches:.0%} of their matches, and {self.contradicting_pairs} others confirm each other"
            )
        if self.rotation_deg is not None and self.rotation_deg > MAX_ROTATION_DEG:
            reasons.append(f"its pairs turn by {self.rotation_deg:.0f} degrees from it")
        if self.neck is not None and self.neck < MIN_NECK:
            reasons.append(f"two parts of it hang together by {self.neck} common points")
        trust = max(LEAST_TRUST, (self.explained_matches - MIN_MATCHES) / (1 - MIN_MATCHES))
        if self.uncertainty is not None and not self.uncertainty <= MAX_UNCERTAINTY * trust:
            reasons.append(f"its camera positions are {self._known}")
        if self.gravity_agreeing is not None and self.gravity_agreeing < MIN_GRAVITY:
            reasons.append(f"{1 - self.gravity_agreeing:.0%} of the readings of gravity contradict it")
        return reasons


class _SometimesInLineChecksJson(TypedDict, total=False):
    """Numbers for and against a map from lines that are there where focal lengths were measured."""

    focal_deviation: float
    contradicted_focals: list[ContradictedFocalJson]


class LineMapCheckJson(_SometimesInLineChecksJson):
    """Numbers for and against a map from lines."""

    checks: int
    close: float
    explained_tracks: float
    uncertainty: float | None
    gravity_deg: float | None
    gravity_agreeing: float | None
    left_out: Reasons


@dataclass(frozen=True, kw_only=True)
class LineMapCheck:
    """Numbers that speak for and against a map from lines (docs/theory/mapping.md, How sure a map is).

    `checks` counts the lines beyond those that any cameras and points would fit; `close` is the share of agreeing lines within
    a quarter of `LineMapOptions.point_error_px`; `explained_tracks` is the share of tracks over four or more of the map's
    images that have a point. `uncertainty` is the median standard deviation of camera centers as a share of their extent.
    `gravity_deg` is the median angle between readings of gravity and their mean in the map, `gravity_agreeing` the share within
    15 degrees. None stands for a number that is not known. `left_out` says why images are not in the map, by name.
    `focal_deviation` and `contradicted_focals` are as in `MapCheck`.
    """

    checks: int
    close: float
    explained_tracks: float
    uncertainty: float | None
    gravity_deg: float | None
    gravity_agreeing: float | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    focal_deviation: float | None = None
    contradicted_focals: tuple[ContradictedFocal, ...] = ()

    __repr__ = one_line

    def as_json(self) -> LineMapCheckJson:
        """JSON record of the check, as docs/reference/json.md describes it."""
        record: LineMapCheckJson = {
            "checks": self.checks,
            "close": self.close,
            "explained_tracks": self.explained_tracks,
            "uncertainty": self.uncertainty,
            "gravity_deg": self.gravity_deg,
            "gravity_agreeing": self.gravity_agreeing,
            "left_out": dict(self.left_out),
        }
        if self.focal_deviation is not None:
            record["focal_deviation"] = self.focal_deviation
        if self.contradicted_focals:
            record["contradicted_focals"] = [item.as_json() for item in self.contradicted_focals]
        return record

    def described(self) -> str:
        """Summary of the check in one line, for people."""
        parts = [
            f"{self.checks} lines check it, {self.close:.0%} of all agree closely, {self.explained_tracks:.0%} of long tracks"
        ]
        if self.uncertainty is not None:
            parts.append(f"noise moves its cameras by {self.uncertainty:.2%} of their extent")
        if self.gravity_deg is not None and self.gravity_agreeing is not None:
            parts.append(f"gravity agrees to {self.gravity_deg:.1f} deg in {self.gravity_agreeing:.0%} of its readings")
        if self.focal_deviation is not None:
            parts.append(f"focal lengths are known to {self.focal_deviation:.0%}")
        parts += [item.described() for item in self.contradicted_focals]
        return "; ".join(parts)

    @property
    def doubts(self) -> list[str]:
        """Reasons to refuse the map, as sentences; empty if nothing speaks against it."""
        reasons = []
        if self.checks < MIN_CHECKS:
            reasons.append(f"only {self.checks} lines check it, fewer than {MIN_CHECKS}")
        if self.close < MIN_CLOSE:
            reasons.append(f"only {self.close:.0%} of its lines agree closely, as in a map that is bent")
        if self.uncertainty is not None and not self.uncertainty <= MAX_LINE_UNCERTAINTY:
            reasons.append(f"noise alone moves its cameras by {self.uncertainty:.1%} of their extent")
        if self.gravity_agreeing is not None and self.gravity_agreeing < MIN_GRAVITY:
            reasons.append(f"{1 - self.gravity_agreeing:.0%} of the readings of gravity contradict it")
        return reasons


@dataclass(frozen=True, kw_only=True, eq=False)
class MappedImage:
    """Registered image of a map, with those of its features that observe a point.

    `name` is the image's, `camera` its camera, `cam_from_world` its pose, and `form` holds the descriptors of its features.
    `keypoints`, float32 (observations, 2), and `point_rows`, int64 (observations,), say which point each of them observes.
    Feature i observes the point `point_rows[i]` (row of `Scene.points`) at `keypoints[i]` (pixels). Where the image hid its
    positions, `lines` are what it sent, and `keypoints` are the projections of its points: the true positions are not here.
    Raises InputError if keypoints, observations, descriptors or lines differ in number.
    """

    name: str
    camera: Camera
    cam_from_world: Rigid
    keypoints: Float32[np.ndarray, "_ 2"]
    point_rows: Int64[np.ndarray, "_"]
    form: Form
    lines: Lines | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.lines is not None and len(self.lines) != len(self.keypoints):
            raise InputError(f"image {self.name!r}: {len(self.lines)} lines for {len(self.keypoints)} observations")
        if not len(self.keypoints) == len(self.point_rows) == len(self.form):
            raise InputError(
                f"image {self.name!r}: {len(self.keypoints)} positions, {len(self.point_rows)} observations and "
                f"{len(self.form)} descriptors do not belong together"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Content of a map: `images` by name, `points` in world coordinates, float64 (points, 3), and how well both fit.

    `mean_reprojection_error_px` is the mean distance of keypoints to the projections of their points, in pixels. World
    coordinates have an arbitrary scale unless the images' poses were metric. `measured_down` is gravity in the world (unit
    vector) where it was given apart from the images' lines. `check` says how sure a map of positions was when it was built.

    Raises InputError for a map without images or points, or with points that are not finite.
    """

    images: Mapping[str, MappedImage]
    points: Float64[np.ndarray, "points 3"]
    mean_reprojection_error_px: float
    measured_down: Float64[np.ndarray, "3"] | None = None
    check: MapCheck | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.images or len(self.points) == 0:
            raise InputError("a map needs at least one image and one point")
        if not np.isfinite(self.points).all():
            raise InputError("a map's points must be finite")

    @property
    def space(self) -> Space:
        """Descriptor space of the map."""
        return next(iter(self.images.values())).form.space

    @property
    def is_public(self) -> bool:
        """Whether the map's descriptors are raw, so that queries match by point-to-subspace distance."""
        return isinstance(next(iter(self.images.values())).form, Points)

    @property
    def down(self) -> Float64[np.ndarray, "3"] | None:
        """Gravity in the world (unit vector): as measured, or the mean of the images' readings; None if there is neither."""
        if self.measured_down is not None:
            return self.measured_down
        return mean_down({name: image.lines.gravity for name, image in self.images.items() if image.lines}, self.images)

    def nearest(self, place: Float64[np.ndarray, "3"], count: int) -> list[str]:
        """Names of the `count` images whose cameras are nearest to a place (world coordinates), the nearest first."""
        distance = {name: float(np.linalg.norm(image.cam_from_world.center - place)) for name, image in self.images.items()}
        return sorted(distance, key=lambda name: distance[name])[:count]

    @cached_property
    def _views(self) -> MapViews:
        """The result of `views_of`, which is computed once."""
        images = [(image.camera, image.cam_from_world, image.point_rows) for image in self.images.values()]
        return map_views(images, self.points)

    @property
    def observation_count(self) -> int:
        """Number of observations of all images together."""
        return sum(len(image.keypoints) for image in self.images.values())

    @property
    def extent(self) -> float:
        """Diagonal of the box that holds the middle 90 % of the points along each axis, in world units."""
        low, high = np.percentile(self.points, [5, 95], axis=0)
        return float(np.linalg.norm(high - low))


def views_of(scene: Scene) -> MapViews:
    """Directions and sizes in which the images of a map see its points."""
    return scene._views


def mean_down(
    gravity: Mapping[str, Float64[np.ndarray, "3"] | None], images: Mapping[str, MappedImage]
) -> Float64[np.ndarray, "3"] | None:
    """Mean direction of gravity in the world, from readings (by image) in the camera frames.

    Readings more than 10 degrees off the median are left out. None if no reading is left, or if not more than half of them
    agree so: nothing tells which of them to believe.
    """
    readings = [
        images[name].cam_from_world.rotation.T @ down for name, down in gravity.items() if down is not None and name in images
    ]
    if not readings:
        return None
    down = np.array(readings)
    middle = np.median(down, axis=0)
    length = float(np.linalg.norm(middle))
    if not length > 0.5:  # opposite readings leave a rounding error, whose direction is no agreement
        return None
    near = down[down @ middle > np.cos(np.radians(10)) * length]
    if not 2 * len(near) > len(down):
        return None
    mean = near.mean(axis=0)
    return mean / float(np.linalg.norm(mean))

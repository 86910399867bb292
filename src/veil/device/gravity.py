"""Gravity in each photograph: a sensor's reading and the vertical edges, weighed against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.device.photographs import with_camera
from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.files.photographs.gravity import (
    gravity_from_exif,
    holds_gravity,
    read_accelerometer,
    read_gravity_readings,
    require_names,
)
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.geometry.device_axes import axes_as_told, axes_from_edges, in_g, parse_axes
from veil.geometry.gravity import Gravity, NoGravity
from veil.geometry.gravity_check import USUAL_ROLL_DEG, GravityCheck, Support, cross_checked, roll_deg, support_of
from veil.geometry.vanishing_point import Vertical, VerticalOptions
from veil.one_line import one_line
from veil.progress import Steps, silent

# Largest standard deviation of edges that are not exact enough for an answer, but show wrong readings and the sense of axes.
CHECK_SIGMA_DEG = 12.0
SOURCES = ("auto", "exif", "readings", "vanishing-point")
NO_READING = "it has no maker note of an iPhone with the accelerometer's reading, and no angles of a drone's gimbal"
BY_EDGES = Remedy("give", "measure_gravity.source", "vanishing-point")


@dataclass(frozen=True, kw_only=True, eq=False)
class GravityAnswer:
    """The answer for one photograph.

    - `name`: the photograph.
    - `source`: "exif", "readings", "vanishing-point" or "colmap".
    - `gravity`: gravity, or the reason why there is none.
    - `note`: why an earlier source did not give the answer, or what to check.
    - `check`: the comparison of sensor and edges, where both were there.
    """

    name: str
    source: str
    gravity: Gravity | NoGravity
    note: str | None = None
    check: GravityCheck | None = None
    _vertical: Vertical | None = None

    __repr__ = one_line

    @property
    def direction(self) -> Float64[np.ndarray, "3"] | None:
        """Down in the camera frame (x right, y down, z forward), a unit vector; None where there is no answer."""
        return self.gravity.direction if isinstance(self.gravity, Gravity) else None


def vertical_of(answer: GravityAnswer) -> Vertical | None:
    """The vertical edges, where they gave the answer."""
    return answer._vertical


@dataclass(frozen=True, kw_only=True, eq=False)
class Edges:
    """Vertical edges of one photograph.

    - `answer`: gravity from the edges, or why there is none.
    - `check`: edges to compare a sensor with, for which less exact ones are enough; None if there are none.
    - `segments`: all segments (segments, 2, 2) in the normalized plane.
    - `pixel`: size of the detector's pixel in the normalized plane.
    - `portrait`: whether the upright photograph is higher than wide.
    """

    answer: Vertical | NoGravity
    check: Vertical | None
    segments: np.ndarray
    pixel: float
    portrait: bool = False

    def support(self, gravity: Gravity) -> Support:
        """The support of a sensor's reading by the segments that do not follow the vertical edges."""
        others = self.segments if self.check is None else np.delete(self.segments, self.check.rows, axis=0)
        return support_of(others, self.pixel, gravity)


def measure_gravity(
    photographs: Sequence[Path | str],
    *,
    source: str = "auto",
    camera: str | None = None,
    readings: Path | str | None = None,
    axes: str | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
    steps: Steps = silent,
) -> dict[str, GravityAnswer]:
    """Where down is in each photograph, by its name, or why there is no answer (docs/theory/gravity.md).

    - `photographs`: files or folders of them.
    - `source`: "exif" (the accelerometer of an iPhone, or a drone's gimbal), "readings", "vanishing-point" (vertical edges) or
      "auto": a sensor, checked against the edges, which also serve where there is none.
    - `camera`: intrinsics of all photographs, as `Camera.parse` reads them; by default those of a K.txt beside them, or EXIF's.
    - `readings`: a table of accelerometer readings of the photographs, or of gravity.
    - `axes`: axes of the readings: "ios", "android" or such as "+x-y-z"; by default told by the vertical edges.
    - `tell`: called with a sentence on the axes that were told so.
    - `steps`: shows progress, see `Steps`.

    Raises InputError for readings of other photographs, names that a table of gravity cannot hold, or options that do not go
    together.
    """
    if source not in SOURCES:
        raise InputError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")
    if readings is None and (axes is not None or source == "readings"):
        raise InputError("give the table of readings")
    if readings is not None and source not in ("auto", "readings"):
        raise InputError(f"readings go with the sources auto and readings, not with {source}")
    pictures = named_pictures([Path(path) for path in photographs])
    require_names(name for name, _ in pictures)
    with steps("finding gravity") as bar:

        def seen() -> Iterator[tuple[str, Path]]:
            for done, item in enumerate(pictures):
                bar(done, len(pictures))
                yield item
            bar(len(pictures), len(pictures))

        if readings is not None:
            edges = {name: edges_of(path, camera) for name, path in seen()}
            return {answer.name: answer for answer in _told_by_table(Path(readings), axes, source, edges, tell)}
        return {name: _of_photograph(name, path, source, camera) for name, path in seen()}


def _of_photograph(name: str, path: Path, source: str, camera: str | None) -> GravityAnswer:
    """The answer for one photograph; an error becomes its answer, so that the other photographs still get theirs."""
    reading = _from_exif(path) if source in ("auto", "exif") else None
    if source == "exif":
        return GravityAnswer(name=name, source="exif", gravity=reading or NoGravity(reason=NO_READING, remedy=(BY_EDGES,)))
    return weighed(name, "exif", reading, edges_of(path, camera))


def _from_exif(path: Path) -> Gravity | NoGravity | None:
    """Gravity that the camera wrote into the photograph, None without any; an error becomes NoGravity."""
    try:
        return gravity_from_exif(path)
    except VeilError as error:
        return NoGravity(reason=error.cause, remedy=error.remedy)


def edges_of(path: Path, camera: str | None) -> Edges:
    """Vertical edges of a photograph; one that cannot be decoded has none, and the answer gives the reason."""
    from veil.extraction.segments import focal_spread, normalized_segments
    from veil.geometry.vanishing_point import vertical_from_segments

    try:
        picture = with_camera(read_picture(path), camera, path)
    except VeilError as error:
        return Edges(
            answer=NoGravity(reason=error.cause, remedy=error.remedy), check=None, segments=np.zeros((0, 2, 2)), pixel=1.0
        )
    segments, pixel = normalized_segments(picture)
    options = VerticalOptions(focal_spread=focal_spread(picture.camera))
    vertical = check = vertical_from_segments(segments, pixel, options)
    if isinstance(vertical, NoGravity):
        check = vertical_from_segments(segments, pixel, replace(options, max_sigma_deg=CHECK_SIGMA_DEG))
    height, width = picture.gray.shape
    return Edges(
        answer=vertical,
        check=check if isinstance(check, Vertical) else None,
        segments=segments,
        pixel=pixel,
        portrait=height > width,
    )


def weighed(name: str, source: str, sensor: Gravity | NoGravity | None, edges: Edges) -> GravityAnswer:
    """The answer from a sensor's reading and edges: the more exact of both if they agree, else the one that is not wrong."""
    seen = edges.answer
    if not isinstance(sensor, Gravity):
        note = sensor.reason if sensor else None
        if isinstance(seen, Vertical):
            return _by_edges(name, seen, note)
        if sensor is not None:
            seen = replace(seen, remedy=tuple(dict.fromkeys((*sensor.remedy, *seen.remedy))))
        return GravityAnswer(name=name, source="vanishing-point", gravity=seen, note=note if note != seen.reason else None)
    if edges.check is None:
        return GravityAnswer(name=name, source=source, gravity=sensor, note="not checked: no vertical edges are to be seen")
    check = cross_checked(sensor, edges.check, edges.support(sensor))
    apart = f"sensor and vertical edges are {check.apart_deg:.1f} degrees apart"
    if check.verdict == "agree":
        exact = isinstance(seen, Vertical) and (seen.gravity.sigma_deg or 90) < (sensor.sigma_deg or 90)
        if exact and isinstance(seen, Vertical):
            return replace(_by_edges(name, seen, f"{apart}, and agree"), check=check)
        return GravityAnswer(name=name, source=source, gravity=sensor, check=check, note=f"{apart}, and agree")
    if check.verdict == "edges wrong":
        return GravityAnswer(
            name=name, source=source, gravity=sensor, check=check, note=f"{apart}: the edges are wrong, {check.why}"
        )
    if check.verdict == "sensor wrong":
        text = f"{apart}: the sensor is wrong, {check.why}"
        if isinstance(seen, Vertical):
            return replace(_by_edges(name, seen, text), check=check)
        no_gravity = NoGravity(reason=f"{text}; {seen.reason}", remedy=seen.remedy)
        return GravityAnswer(name=name, source=source, check=check, gravity=no_gravity)
    reason = f"{apart}, and which is wrong cannot be told: {check.why}"
    either = (Remedy("give", "measure_gravity.source", source), BY_EDGES)
    return GravityAnswer(name=name, source=source, check=check, gravity=NoGravity(reason=reason, remedy=either))


def _by_edges(name: str, seen: Vertical, note: str | None) -> GravityAnswer:
    """The answer by vertical edges, with a doubt where the camera would be rolled as people avoid it.

    Bundles of parallel lines on tables and floors pass for vertical; an unusual roll reveals them.
    """
    roll = roll_deg(seen.gravity)
    doubt = f"rolled by {roll:.0f} degrees: look whether its edges are vertical in the world"
    notes = [text for text in (note, doubt if roll > USUAL_ROLL_DEG else None) if text]
    return GravityAnswer(
        name=name, source="vanishing-point", gravity=seen.gravity, _vertical=seen, note="; ".join(notes) or None
    )


def _told_by_table(
    table: Path, axes: str | None, source: str, edges: dict[str, Edges], tell: Callable[[str], None]
) -> list[GravityAnswer]:
    """Answers for all photographs from a table of readings, whose axes are given or estimated from vertical edges."""
    sensors = _gravity_of_table(table, axes, edges, tell)
    if not any(isinstance(sensor, Gravity) for sensor in sensors.values()) and not set(sensors) & set(edges):
        raise InputError(f"{table} names none of the photographs; it names {', '.join(sorted(sensors)[:3])}")
    answers = []
    for name, seen in edges.items():
        sensor = sensors.get(name) or NoGravity(reason=f"{table} has no reading of it")
        if source == "readings" and isinstance(sensor, NoGravity):
            answers.append(GravityAnswer(name=name, source="readings", gravity=sensor))
        else:
            answers.append(weighed(name, "readings", sensor, seen))
    return answers


def _gravity_of_table(
    path: Path, axes_text: str | None, edges: dict[str, Edges], tell: Callable[[str], None]
) -> dict[str, Gravity | NoGravity]:
    """Gravity from a table of readings by name of the photograph; the table may name them with or without folders."""
    if not axes_text and holds_gravity(path):
        readings: dict[str, Gravity | NoGravity] = {**read_gravity_readings(path)}
        return {name: readings[entry] for name, entry in joined(path, list(edges), list(readings)).items()} or readings
    table = read_accelerometer(path)
    entries = joined(path, list(edges), list(table))
    names = [name for name in edges if name in entries]
    if not names:
        raise FileFormatError(f"{path} names none of the photographs; it names {', '.join(sorted(table)[:3])}")
    acceleration = in_g(np.array([table[entries[name]] for name in names]))
    portrait = np.array([edges[name].portrait for name in names])
    if axes_text:
        axes = axes_as_told(acceleration, portrait, parse_axes(axes_text))
    else:
        checks = [edges[name].check for name in names]
        downs = np.array([np.full(3, np.nan) if check is None else check.gravity.direction for check in checks])
        sigma = np.array([90.0 if check is None else check.gravity.sigma_deg or 90.0 for check in checks])
        axes = axes_from_edges(acceleration, portrait, downs, sigma)
        seen = sum(check is not None for check in checks)
        for kind in sorted(set(portrait.tolist())):
            shape = "portrait" if kind else "landscape"
            tell(
                f"axes of the {shape} photographs, by vertical edges of {seen} of {len(names)}: {axes.convention.told(kind)} "
                f"(probability {axes.probability:.3f})"
            )
    return dict(zip(names, axes.readings, strict=True))


def joined(table: Path, names: Sequence[str], entries: Sequence[str]) -> dict[str, str]:
    """The entry of a table for each photograph that has one: the same path, else one that ends like it, or the reverse.

    Raises InputError where several entries may be a photograph's, or several photographs an entry's: `left/1.jpg` and
    `right/1.jpg` are not one.
    """
    pairs = {name: name for name in names if name in set(entries)}
    rest = [entry for entry in entries if entry not in pairs]
    ends: dict[str, list[str]] = {}
    for entry in rest:
        ends.setdefault(entry.rpartition("/")[2], []).append(entry)
    users: dict[str, str] = {}
    for name in names:
        if name in pairs:
            continue
        alike = [entry for entry in ends.get(name.rpartition("/")[2], ()) if _ends_like(name, entry)]
        if len(alike) > 1:
            raise InputError(
                f"{table} has {alike[0]} and {alike[1]}, and either may be {name}; name photographs by their paths"
            )
        for entry in alike:
            if entry in users:
                raise InputError(
                    f"{table} has {entry}, which may be {users[entry]} or {name}; name photographs by their paths below the "
                    "folder that was given"
                )
            users[entry], pairs[name] = name, entry
    return pairs


def _ends_like(one: str, other: str) -> bool:
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")

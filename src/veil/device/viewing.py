"""Views of maps and audits: what `veil view` shows, from files, and the files that it exports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.device.doors import queries as read_queries
from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.features import Features
from veil.files.atomic import write_text
from veil.files.attack_networks import bundled_inverter
from veil.files.audit_pages import AuditPicture, read_audit_page
from veil.files.features import holds_features, read_named_features
from veil.files.photographs.pictures import named_pictures, read_rgb
from veil.files.tables import read_json
from veil.forms import Lines, Points
from veil.geometry.camera import GUESS, Camera, as_colmap, rescaled
from veil.geometry.rigid import Rigid, center_covariance
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import DIM, Frame, points_map
from veil.one_line import one_line
from veil.places.held_map import Map
from veil.places.localization import localize_loaded
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose, camera_of_json, focal_told
from veil.progress import Progress, Steps, ignore_progress, silent
from veil.report.viewer.content import AttackPicture, Known, ShownImage, View, ViewLimits, view_of_scene
from veil.report.viewer.packing import evenly
from veil.report.viewer.page import page


@dataclass(frozen=True, kw_only=True, eq=False)
class ViewedMap:
    """A view of a map: `refused` queries with the reason for each, and files that were `skipped` as they cannot be read.

    `limits` are the most that its page holds.
    """

    refused: Mapping[str, str]
    skipped: Mapping[str, str]
    limits: ViewLimits = field(default_factory=ViewLimits)
    _view: View

    __repr__ = one_line

    def write(self, path: Path | str) -> None:
        """Write the view as one HTML page, which holds all that it shows; for its owner alone where photographs are in it.

        Raises InputError if it cannot be written.
        """
        made = page(self._view, self.limits)
        write_text(Path(path), made.html, private=made.photographs > 0 or made.true_positions > 0)


def view_of(viewed: ViewedMap) -> View:
    """All that the page of a map shows."""
    return viewed._view


def view_map(
    where: Map,
    *,
    title: str = "map",
    queries: Sequence[Path | str] = (),
    device: Sequence[Path | str] = (),
    report: Path | str | None = None,
    invert: int = 0,
    further: Sequence[Path | str] = (),
    limits: ViewLimits | None = None,
    steps: Steps[Progress] = silent,
) -> ViewedMap:
    """The view of a map as its server has it, with queries, photographs of the device and pictures of attacks.

    - `where`: the map.
    - `title`: of the page.
    - `queries`: messages (.veil, or folders of them) that are localized now, and records of localized queries (JSON).
    - `device`: photographs, folders of them and files of features, whose owner wants them in the page.
    - `report`: the page of an audit, for the pictures that attacks drew.
    - `invert`: number of images of a public map of which the bundled network draws pictures from raw descriptors.
    - `further`: folders of the map's further models, which the page names.
    - `limits`: the most that the page holds; by default those of `ViewLimits`.
    - `steps`: shows progress, see `Steps`.

    Raises InputError if what the device gave, or the report, is of other images, or nothing can be inverted; FileFormatError
    for files that are none of theirs.
    """
    limits = limits or ViewLimits()
    view = view_of_scene(where.scene, title)
    if further:
        view = replace(view, of_server=[*view.of_server, told_further(further)])
    refused: dict[str, str] = {}
    skipped: dict[str, str] = {}
    with steps("localizing") as bar:
        shown = _queries(where, [Path(path) for path in queries], refused, skipped, bar)
    view = replace(view, images=[*view.images, *shown])
    if device:
        with steps("the device's files") as bar:
            own, most_px = [Path(path) for path in device], limits.picture_px
            view = replace(view, known=known_images(view.images, own, most_px=most_px, progress=bar))
    recovered: dict[str, list[AttackPicture]] = {}
    if report is not None:
        recovered = _of_report(Path(report), view)
    if invert:
        with steps("inverting") as bar:
            for name, item in inverted(where, invert, bar).items():
                recovered.setdefault(name, []).append(item)
    if refused:
        refusals = [f"No pose for {name}: {reason}" for name, reason in refused.items()]
        view = replace(view, of_server=[*view.of_server, *refusals])
    return ViewedMap(_view=replace(view, recovered=recovered), refused=refused, skipped=skipped, limits=limits)


def told_further(models: Sequence[Path | str]) -> str:
    """A sentence about further models of a map, which do not join the one that is shown."""
    if len(models) == 1:
        return "This is the largest of the map's two models; the other does not join it"
    return f"This is the largest of the map's {len(models) + 1} models, which do not join"


def view_audit(path: Path) -> View:
    """The releases of an audit's page as three views of one picture: no map, no points.

    Raises FileFormatError if it is none of an audit, InputError if it has no pictures.
    """
    pictures = read_audit_page(path)
    if not pictures:
        raise InputError(f"{path} has no pictures", remedy=Remedy("give", "AuditOptions.pictured"))
    images, known, recovered = [], {}, {}
    for release in dict.fromkeys(picture.release for picture in pictures):
        mine = [picture for picture in pictures if picture.release == release]
        drawn = [AttackPicture(title=item.title, rgb=item.rgb) for item in mine if item.kind == "reconstructed"]
        photograph = next((item.rgb for item in mine if item.kind == "photograph"), None)
        sent = next((item for item in mine if item.kind == "sent"), None)
        shape = photograph.shape if photograph is not None else sent.rgb.shape if sent is not None else drawn[0].rgb.shape
        images.append(_bare(release, shape[1], shape[0], sent))
        if photograph is not None:
            known[release] = Known(photograph=photograph)
        if drawn:
            recovered[release] = drawn
    server = [
        f"{len(images)} releases, as the audit's page shows them: what stands for their descriptors is not in this page.",
        "A view of the map that is given this page shows them among points and cameras.",
    ]
    return View(
        title=path.name,
        kind="audit",
        points=np.zeros((0, 3)),
        images=images,
        of_server=server,
        known=known,
        recovered=recovered,
    )


def _bare(name: str, width: int, height: int, sent: AuditPicture | None) -> ShownImage:
    """An image without a pose, of which the server's view is the audit's picture."""
    focal = 1.2 * max(width, height)
    params = (focal, width / 2, height / 2)
    camera = Camera(model="SIMPLE_PINHOLE", width_px=width, height_px=height, params=params, focal=GUESS)
    return ShownImage(
        name=name,
        camera=camera,
        cam_from_world=None,
        keypoints=np.zeros((0, 2), dtype=np.float32),
        point_rows=np.zeros(0, dtype=np.int64),
        sent=None if sent is None else sent.rgb,
    )


def inverted(where: Map, count: int, progress: Progress) -> dict[str, AttackPicture]:
    """Pictures that the bundled network draws from a public map's raw descriptors, of `count` of its images, evenly chosen.

    Raises InputError for a private map, and for descriptors that the network cannot read.
    """
    names = sorted(where.scene.images)
    chosen = [names[row] for row in evenly(len(names), count)]
    space = where.scene.space
    if not where.is_public or space.descriptor != "sift" or space.dim != DIM:
        raise InputError(f"only raw SIFT of a public map is inverted here, not [{space}]", remedy=Remedy("make", "audit"))
    network = PlainInverter(bundled_inverter())
    recovered = {}
    for done, name in enumerate(chosen):
        progress(done, len(chosen))
        image = where.scene.images[name]
        assert isinstance(image.form, Points)
        vectors = image.form.vectors.astype(np.float64)
        if space.normalization == "L1_ROOT":
            vectors = np.square(vectors)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        frame = Frame(width=image.camera.width_px, height=image.camera.height_px)
        rgb = network.invert([points_map(frame, image.keypoints, vectors)])[0]
        title = f"drawn from {len(vectors):,} raw descriptors of the public map, which anyone who holds it can do"
        recovered[name] = AttackPicture(title=title, rgb=rgb)
    progress(len(chosen), len(chosen))
    return recovered


def _of_report(path: Path, view: View) -> dict[str, list[AttackPicture]]:
    """Pictures that attacks drew of images of the view, by name. Raises InputError if the audit was of others."""
    names = {image.name for image in view.images}
    recovered: dict[str, list[AttackPicture]] = {}
    pictures = [picture for picture in read_audit_page(path) if picture.kind == "reconstructed"]
    for picture in pictures:
        name = next((name for name in (picture.release, picture.image) if name in names), None)
        if name is not None:
            recovered.setdefault(name, []).append(AttackPicture(title=picture.title, rgb=picture.rgb))
    if not recovered:
        audited = ", ".join(sorted({picture.release for picture in pictures})[:3]) or "none"
        raise InputError(
            f"{path} has no picture that an attack drew of an image of this map or of its queries (it has of: {audited})",
            remedy=Remedy("give", "view_map.queries"),
        )
    return recovered


def _queries(
    where: Map, paths: Sequence[Path], refused: dict[str, str], skipped: dict[str, str], progress: Progress
) -> list[ShownImage]:
    """Queries with a pose; those without are added to `refused` with the reason."""
    shown: list[ShownImage] = []
    for done, path in enumerate(paths):
        progress(done, len(paths))
        if path.suffix.lower() == ".json":
            shown += _told_poses(path, where, refused)
            continue
        if path.suffix.lower() in (".h5", ".hdf5"):
            raise InputError(f"{path} holds raw features, which no server sees", remedy=Remedy("give", "view_map.device"))
        for name, query in read_queries([path], strict=False, skipped=skipped):
            try:
                answer = localize_loaded(query, where)
            except VeilError as error:
                skipped[name] = str(error)
                continue
            if isinstance(answer, NoPose):
                refused[name] = answer.reason
            else:
                shown.append(shown_query(name, query, answer))
    progress(len(paths), len(paths))
    return shown


def shown_query(name: str, query: LoadedImage, answer: Localization) -> ShownImage:
    """A query as its server has it: what was sent, its pose, and the points of the map that it matched."""
    rows = np.full(query.features, -1, dtype=np.int64)
    rows[answer.keypoint_rows] = answer.point_rows
    lines = query.positions if isinstance(query.positions, Lines) else None
    spread = None if answer.covariance is None else center_covariance(answer.cam_from_world, answer.covariance)
    facts = [
        f"{answer.inliers} inliers of {answer.correspondences:,} matches",
        f"turn known to {answer.turn_deviation_deg:.2g} degrees",
        focal_told(answer.camera),
        *([] if spread is None else [f"center known to {math.sqrt(np.trace(spread)):.2g} units of the map"]),
    ]
    return ShownImage(
        name=name,
        camera=query.camera if lines is not None else answer.camera,  # lines lie in the plane of the declared camera
        cam_from_world=answer.cam_from_world,
        keypoints=np.zeros((0, 2), dtype=np.float32) if lines is not None else np.asarray(query.positions, dtype=np.float32),
        point_rows=rows,
        lines=lines,
        is_query=True,
        center_covariance=spread,
        told=tuple(facts),
    )


def _told_poses(path: Path, where: Map, refused: dict[str, str]) -> list[ShownImage]:
    """The queries of a record of localized queries. Raises FileFormatError if it is none."""
    try:
        rows = read_json(path)["queries"]
        shown = []
        for row in rows:
            if row["status"] == "localized":
                shown.append(_told_pose(row, next(iter(where.scene.images.values())).camera))
            else:
                refused[str(row["name"])] = str(row["reason"])
    except (FileFormatError, ValueError, LookupError, TypeError) as error:
        raise FileFormatError(
            f"{path} is no record of localized queries ({error!r})", remedy=Remedy("make", "record of localized queries")
        ) from None
    return shown


def _told_pose(row: Mapping[str, Any], camera: Camera) -> ShownImage:
    """The query of one record; one of an older version does not tell its camera, and is drawn with `camera`."""
    pose = Rigid(
        rotation=_numbers(row["cam_from_world"]["rotation"], (3, 3)),
        translation=_numbers(row["cam_from_world"]["translation"], (3,)),
    )
    spread = None if row.get("covariance") is None else center_covariance(pose, _numbers(row["covariance"], (6, 6)))
    return ShownImage(
        name=str(row["name"]),
        camera=camera if row.get("camera") is None else camera_of_json(row["camera"]),
        cam_from_world=pose,
        keypoints=np.zeros((0, 2), dtype=np.float32),
        point_rows=np.zeros(0, dtype=np.int64),
        is_query=True,
        center_covariance=spread,
        told=(f"{int(row['inliers'])} inliers of {int(row['correspondences']):,} matches", "what was sent is not in this page"),
    )


def _numbers(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape. Raises ValueError for another one, or numbers that are not finite."""
    numbers = np.array(value, dtype=np.float64)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise ValueError(f"finite numbers of shape {shape} were expected")
    return numbers


POSITION_TOL_PX = 1e-3
LINE_TOL = 2e-6  # lines travel in float32 (veil.audit.ground_truth)
RECOGNIZED = 0.9
MOST_LINES = 256  # of an image, by which its photograph is recognized: a few dozen would do


def known_images(
    images: Sequence[ShownImage], paths: Sequence[Path], *, most_px: int, progress: Progress = ignore_progress
) -> dict[str, Known]:
    """Contents of `paths` for `images`, by the name of the image: photographs, and true positions from files of features.

    A private map calls its images by their messages: the features of each are recognized by their positions or lines. A public
    map, and photographs without features, go by the name of the photograph. Photographs are made smaller, to `most_px` on the
    longer side, and positions of features of another size are rescaled. Raises InputError if nothing of what is given belongs
    to any image, or features of an image's name are of another shape than the image.
    """
    features = read_named_features(path for path in paths if holds_features(path))
    folders = [path for path in paths if not holds_features(path)]
    pictures = _Named(dict(named_pictures(folders)) if folders else {})
    known: dict[str, Known] = {}
    for done, image in enumerate(images):
        progress(done, len(images))
        original = _named(features, image.name) or _recognized(image, features)
        item = features.get(original) if original else None
        picture = pictures.of(image.name) or (original and pictures.of(original))
        if picture is None and item is None:
            continue
        known[image.name] = Known(
            photograph=_smaller(picture, most_px) if picture else None,
            keypoints=None if item is None else _true_positions(image, item),
        )
    progress(len(images), len(images))
    if not known:
        given = ", ".join(str(path) for path in paths)
        raise InputError(
            f"nothing in {given} belongs to an image of the map ({', '.join(image.name for image in images[:3])}); give the "
            "features.h5 that was released or mapped, and photographs with it"
        )
    return known


class _Named:
    """Photographs by their name, by its last part, or by that without a suffix, where these are of one alone."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._by: list[dict[str, Path | None]] = [{}, {}, {}]
        for name, path in paths.items():
            for table, key in zip(self._by, _keys(name), strict=True):
                table[key] = None if key in table else path

    def of(self, name: str) -> Path | None:
        """The photograph that a name means; None if there is none, or several."""
        return next((path for table, key in zip(self._by, _keys(name), strict=True) if (path := table.get(key))), None)


def _keys(name: str) -> tuple[str, str, str]:
    parts = PurePosixPath(name)
    return name, parts.name, parts.stem


def _named(features: Mapping[str, Features], name: str) -> str | None:
    return name if name in features else None


def _true_positions(image: ShownImage, item: Features) -> Float64[np.ndarray, "n 2"]:
    """Positions of features in pixels of an image, which may have another size. Raises InputError for another shape."""
    own, camera = item.camera, image.camera
    if rescaled(own, camera.width_px, camera.height_px) is None:
        raise InputError(
            f"the features of {image.name} are of {own.width_px}x{own.height_px} px, in the map it has "
            f"{camera.width_px}x{camera.height_px} px, which has another ratio of the sides; give the features of this image"
        )
    return item.keypoints * np.array([camera.width_px / own.width_px, camera.height_px / own.height_px])


def _smaller(path: Path, most_px: int) -> np.ndarray:
    """Pixels of a photograph, made smaller where its longer side is longer than `most_px`."""
    from PIL import Image

    picture = Image.fromarray(read_rgb(path))
    picture.thumbnail((most_px, most_px))
    return np.asarray(picture)


def _recognized(image: ShownImage, features: Mapping[str, Features]) -> str | None:
    """Name of the features that an image was made of; None if no photograph has nearly all of its positions or lines."""
    best, most = None, RECOGNIZED
    for name, item in features.items():
        if (item.camera.width_px, item.camera.height_px) != (image.camera.width_px, image.camera.height_px):
            continue
        share = _share(image, item.keypoints.astype(np.float64))
        if share >= most:
            best, most = name, share
    return best


def _share(image: ShownImage, keypoints: Float64[np.ndarray, "n 2"]) -> float:
    """The share of an image's positions, or lines, that belong to one of the `keypoints` (pixels)."""
    if not len(image.point_rows) or not len(keypoints):
        return 0.0
    if image.lines is None:
        from scipy.spatial import cKDTree

        return float((cKDTree(keypoints).query(image.keypoints)[0] < POSITION_TOL_PX).mean())
    xy = np.asarray(as_colmap(image.camera).cam_from_img(keypoints), dtype=np.float64)
    coefficients = image.lines.coefficients[:MOST_LINES].astype(np.float64)
    off = np.abs(coefficients @ np.hstack([xy, np.ones((len(xy), 1))]).T)
    return float((off.min(axis=1) < LINE_TOL).mean())

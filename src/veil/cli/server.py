"""`veil match`, `veil map` and `veil localize`: the commands of the server."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli import EXIT_NO_POSE, EXIT_OK
from veil.cli.common import Bar, add_command, add_json, at_least, quiet_colmap, report, say, write_json
from veil.cli.line_maps import map_messages
from veil.codebook import Codebook
from veil.errors import InputError, WireError
from veil.files.atomic import read_bytes
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.features import read_features
from veil.files.maps import read_map, require_vacant, write_map
from veil.forms import Form, Lines, Subspaces
from veil.geometry.camera import Camera
from veil.localize import Localization, LocalizeOptions, NoPose, localize
from veil.mapping import MapImage, MapOptions, NoMap, build_map
from veil.mapping.lines.scenes import LineImage
from veil.match import MatchOptions, match, match_pairs
from veil.match.neighbors import distance_name
from veil.match.pairs import all_pairs
from veil.match.ratio import calibrated
from veil.privatize.public import publish
from veil.wire import LineUpload, decode

MATCH_EXAMPLES = """\
  veil match upload/1a....veil upload/9c....veil
  veil match a.veil b.veil --ratio auto --json matches.json
"""
MAP_EXAMPLES = """\
  veil map upload/ -o map/            a private map from messages of `veil privatize`
  veil map features.h5 -o map/        a public map from raw features
  veil map lines/ -o map/             from messages of `veil privatize --lines`, no position sent
  veil map more/ --add-to map/ -o map2/   the same map with more images
"""
LOCALIZE_EXAMPLES = """\
  veil localize map/ upload/3f2a....veil
  veil localize map/ queries/*.veil --json poses.json
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the commands."""
    parser = add_command(commands, "match", "match two uploads", "Mutual nearest neighbors of two messages.", MATCH_EXAMPLES)
    parser.add_argument("left", type=Path, help="a .veil message")
    parser.add_argument("right", type=Path, help="another one")
    _add_matching(parser)
    add_json(parser)
    parser.set_defaults(run=_match)

    parser = add_command(
        commands,
        "map",
        "uploads or raw features -> a map",
        "Match all pairs and reconstruct: with COLMAP from positions, or from random lines alone where the messages hide\n"
        "their positions (four images or more with gravity). The map is a COLMAP model with released descriptors, and lines,\n"
        "beside. Mapping from lines goes on where it was interrupted when the same command is given again.",
        MAP_EXAMPLES,
    )
    parser.add_argument("input", type=Path, help="folder of .veil messages, or raw features (.h5)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="map to write")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of RANSAC and mapping (default 0)")
    parser.add_argument("--add-to", type=Path, metavar="MAP", help="a map of lines to add the messages to; it stays as it is")
    parser.add_argument("--gravity-sigma", type=float, default=0.5, metavar="DEG", help="of lines' gravity (default 0.5)")
    _add_matching(parser)
    add_json(parser)
    parser.set_defaults(run=_map)

    parser = add_command(
        commands,
        "localize",
        "upload + map -> a pose, or a reason why there is none",
        "Estimate the pose of each query. A pose is returned only if chance cannot explain its inliers; otherwise the\n"
        "reason is printed and the exit code is 3.",
        LOCALIZE_EXAMPLES,
    )
    parser.add_argument("map", type=Path, help="a folder that `veil map` wrote")
    parser.add_argument("queries", type=Path, nargs="+", help=".veil messages, or raw features (.h5)")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="of the queries; default: the bundled one")
    parser.add_argument("--max-error", type=float, default=8.0, metavar="PX", help="inlier threshold (default 8)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of RANSAC (default 0)")
    _add_matching(parser)
    add_json(parser)
    parser.set_defaults(run=_localize)


def _add_matching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ratio", metavar="R", help="ratio test: none, auto, or a number (default none; of lines' maps auto)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time (default 2)")


def _options(arguments: argparse.Namespace, left, right) -> MatchOptions:  # type: ignore[no-untyped-def]
    if arguments.ratio in (None, "none"):
        return MatchOptions()
    if arguments.ratio == "auto":
        return MatchOptions(max_ratio=calibrated(left, right))
    try:
        return MatchOptions(max_ratio=float(arguments.ratio))
    except ValueError as error:
        raise InputError(f"--ratio takes none, auto or a number in (0, 1], got {arguments.ratio!r} ({error})") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """One image as a file gives it: what is seen of its keypoints are positions, or lines that hide them."""

    camera: Camera
    seen: np.ndarray | Lines
    form: Form


def load_images(path: Path) -> dict[str, Loaded]:
    """All images of a folder of messages, of one message, or of a file of raw features."""
    if path.is_dir():
        files = sorted(path.glob("*.veil"))
        if not files:
            raise InputError(f"{path} holds no .veil messages; make some with `veil privatize`")
    else:
        files = [path]
    images: dict[str, Loaded] = {}
    for file in files:
        if file.suffix in (".h5", ".hdf5"):
            for name, raw in read_features(file):
                images[name] = Loaded(camera=raw.camera, seen=raw.keypoints, form=publish(raw))
        else:
            images[file.stem] = _load_message(file)
    return images


def _load_message(file: Path) -> Loaded:
    try:
        upload = decode(read_bytes(file))
    except WireError as error:
        raise WireError(f"{file}: {error}") from None
    seen = upload.lines if isinstance(upload, LineUpload) else upload.keypoints
    return Loaded(camera=upload.camera, seen=seen, form=upload.form)


def _with_positions(images: dict[str, Loaded]) -> dict[str, MapImage]:
    """The images as point mapping needs them."""
    found = {}
    for name, image in images.items():
        if isinstance(image.seen, Lines):
            raise InputError(f"{name} hides its positions and others do not; map them apart, or release all with --lines")
        found[name] = MapImage(camera=image.camera, keypoints=image.seen, form=image.form)
    return found


def _with_lines(images: dict[str, Loaded]) -> dict[str, LineImage]:
    """The images as mapping from lines needs them."""
    return {
        name: LineImage(camera=image.camera, lines=image.seen, form=image.form)
        for name, image in images.items()
        if isinstance(image.seen, Lines)
    }


def _digests(path: Path) -> list[bytes]:
    """What identifies the messages of a run."""
    files = sorted(path.glob("*.veil")) if path.is_dir() else [path]
    return [file.name.encode() + hashlib.sha256(read_bytes(file)).digest() for file in files]


def _match(arguments: argparse.Namespace) -> int:
    left, right = (_only_image(path) for path in (arguments.left, arguments.right))
    options = _options(arguments, left.form, right.form)
    found = match(left.form, right.form, options)
    counts = f"{len(left.form)} and {len(right.form)}"
    say(arguments, f"{len(found)} mutual nearest neighbors of {counts} features, {found_by(left, right)}")
    write_json(
        arguments.json,
        {"distance": found_by(left, right), "matches": found.indices.tolist(), "distances": found.distances.tolist()},
    )
    return 0


def _only_image(path: Path) -> Loaded:
    images = list(load_images(path).values())
    if len(images) != 1:
        raise InputError(f"{path} holds {len(images)} images; `veil match` takes one on each side, give single messages")
    return images[0]


def found_by(left: Loaded, right: Loaded) -> str:
    """The distance that compares the two."""
    return distance_name(left.form, right.form)


def _map(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    require_vacant(arguments.output)
    loaded = load_images(arguments.input)
    if all(isinstance(image.seen, Lines) for image in loaded.values()):
        return map_messages(arguments, _with_lines(loaded), _digests(arguments.input))
    if arguments.add_to:
        raise InputError("--add-to takes messages with lines; a map of positions is built again from all its images")
    images = _with_positions(loaded)
    names = sorted(images)
    if len(names) < 2:
        raise InputError(f"a map needs at least two images, {arguments.input} holds {len(names)}")
    options = _options(arguments, images[names[0]].form, images[names[1]].form)
    forms = {name: image.form for name, image in images.items()}
    with Bar("matching") as bar:
        matches = match_pairs(forms, all_pairs(names), options=options, workers=arguments.workers, progress=bar)
    with tempfile.TemporaryDirectory(prefix="veil-map-") as workdir, Bar("mapping") as bar:
        scene = build_map(images, matches, workdir=Path(workdir), options=MapOptions(seed=arguments.seed), progress=bar)
    if isinstance(scene, NoMap):
        raise InputError(f"no map: {scene.reason}")
    write_map(arguments.output, scene)
    facts = {
        "images": len(images),
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "public": scene.is_public,
    }
    write_json(arguments.json, facts)
    say(
        arguments,
        f"{facts['registered']} of {facts['images']} images, {facts['points']} points, "
        f"{scene.mean_reprojection_error_px:.2f} px mean reprojection error",
    )
    report(arguments, arguments.output, "the public map" if scene.is_public else "the private map")
    return 0


def query_codebook(path: Path | None, query, scene) -> Codebook | None:  # type: ignore[no-untyped-def]
    """The codebook that brings a public map into the query's space, where one is needed."""
    if path is not None:
        return read_codebook(path)
    if not scene.is_public or query.space == scene.space or not isinstance(query, Subspaces):
        return None
    book = bundled_codebook()
    if book.digest != query.space.codebook:
        raise InputError(
            f"the query was privatized with codebook {query.space.codebook[:12] or '(none)'}, the bundled one is "
            f"{book.digest[:12]}; give it with --codebook"
        )
    return book


def _localize(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    scene = read_map(arguments.map)
    map_form = next(iter(scene.images.values())).form
    rows = []
    for path in arguments.queries:
        for name, query in load_images(path).items():
            options = LocalizeOptions(
                max_error_px=arguments.max_error,
                matching=_options(arguments, query.form, map_form),
                workers=arguments.workers,
                seed=arguments.seed,
            )
            start = time.perf_counter()
            codebook = query_codebook(arguments.codebook, query.form, scene)
            with Bar("matching") as bar:
                found = localize(query.camera, query.seen, query.form, scene, codebook=codebook, options=options, progress=bar)
            rows.append(_row(name, found, time.perf_counter() - start))
            say(arguments, _pose_line(name, found))
    write_json(arguments.json, {"queries": rows})
    return EXIT_OK if all(row["status"] == "localized" for row in rows) else EXIT_NO_POSE


def _row(name: str, found: Localization | NoPose, seconds: float) -> dict:
    if isinstance(found, NoPose):
        return {"name": name, "status": "no pose", "reason": found.reason, "seconds": seconds}
    return {
        "name": name,
        "status": "localized",
        "cam_from_world": {
            "rotation": found.cam_from_world.rotation.tolist(),
            "translation": found.cam_from_world.translation.tolist(),
        },
        "camera_center": found.cam_from_world.center.tolist(),
        "covariance": None if found.covariance is None else found.covariance.tolist(),
        "inliers": found.inliers,
        "correspondences": found.correspondences,
        "log10_nfa": found.log10_nfa,
        "seconds": seconds,
    }


def _pose_line(name: str, found: Localization | NoPose) -> str:
    if isinstance(found, NoPose):
        return f"{name}: no pose: {found.reason}"
    center = " ".join(f"{value:.4f}" for value in found.cam_from_world.center)
    return f"{name}: camera center {center}, {found.inliers} inliers of {found.correspondences} matches"

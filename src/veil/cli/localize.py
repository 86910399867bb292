"""`veil localize`: an upload and a map give a pose, or a reason why there is none."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from veil.cli import EXIT_NO_POSE, EXIT_OK
from veil.cli.common import Bar, add_command, add_json, add_strict, at_least, quiet_colmap, say, tell_skipped, write_json
from veil.cli.index import query_vocabulary
from veil.cli.server import add_matching, matching_options
from veil.cli.uploads import Loaded, queries
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.maps import read_map
from veil.forms import Subsets, Subspaces
from veil.geometry.grouped import GroupedOptions
from veil.localization.by_distance import Localization, LocalizeOptions, NoPose, localize
from veil.localization.by_words import WordOptions, localize_words
from veil.scene import Scene

# Of the processor, all threads together, for a search by words: ordinary ones take one or two, and only a longer one depends on
# how fast the machine is. What else it does, and the number of threads, change nothing.
MAX_SECONDS = 10.0

EXAMPLES = """\
  veil localize map/ upload/3f2a....veil
  veil localize map/ queries/*.veil --json poses.json
  veil localize map/ words.veil --dictionary dictionary.npz   a query in words; once for all: `veil index`
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""
    parser = add_command(
        commands,
        "localize",
        "upload + map -> a pose, or a reason why there is none",
        "Estimate the pose of each query. A pose is returned only if chance cannot explain its inliers; otherwise the\n"
        "reason is printed and the exit code is 3.",
        EXAMPLES,
    )
    parser.add_argument("map", type=Path, help="a folder that `veil map` wrote")
    parser.add_argument("queries", type=Path, nargs="+", help=".veil messages, or raw features (.h5)")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="of the queries; default: the bundled one")
    parser.add_argument("--dictionary", metavar="FILE", help="of queries in words, if the map has no index for it")
    parser.add_argument("--max-error", type=float, default=8.0, metavar="PX", help="inlier threshold (default 8)")
    parser.add_argument("--iterations", type=at_least(1), default=200_000, help="samples, of words (default %(default)s)")
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=MAX_SECONDS,
        metavar="S",
        help="and of the processor's time (default %(default)s; 0: no limit)",
    )
    parser.add_argument("--gravity-sigma", type=float, default=0.5, metavar="DEG", help="of words with lines (default 0.5)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of RANSAC (default 0)")
    add_strict(parser)
    add_matching(parser)
    add_json(parser)
    parser.set_defaults(run=_localize)


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
    rows: list[dict] = []
    skipped: dict[str, str] = {}
    try:
        for name, query in queries(arguments.queries, strict=arguments.strict, skipped=skipped):
            start = time.perf_counter()
            try:
                found = _answer(arguments, query, scene)
            except InputError as error:  # of another space or dictionary, or lines without gravity
                if arguments.strict or len(arguments.queries) == 1:
                    raise
                skipped[name] = str(error)
                continue
            rows.append(_row(name, found, time.perf_counter() - start))
            say(arguments, _pose_line(name, found))
    finally:  # a query that cannot be read takes nothing from the others
        tell_skipped(skipped)
        write_json(arguments.json, {"queries": rows, "skipped": skipped})
    if not rows:
        raise InputError(f"none of the {len(skipped)} queries could be used")
    return EXIT_NO_POSE if skipped or any(row["status"] != "localized" for row in rows) else EXIT_OK


def _answer(arguments: argparse.Namespace, query: Loaded, scene: Scene) -> Localization | NoPose:
    if isinstance(query.form, Subsets):
        return _by_words(arguments, query, query.form, scene)
    return _by_distance(arguments, query, scene)


def _by_distance(arguments: argparse.Namespace, query: Loaded, scene: Scene) -> Localization | NoPose:
    map_form = next(iter(scene.images.values())).form
    options = LocalizeOptions(
        max_error_px=arguments.max_error,
        matching=matching_options(arguments, query.form, map_form),
        workers=arguments.workers,
        seed=arguments.seed,
    )
    codebook = query_codebook(arguments.codebook, query.form, scene)
    with Bar("matching") as bar:
        return localize(query.camera, query.seen, query.form, scene, codebook=codebook, options=options, progress=bar)


def _by_words(arguments: argparse.Namespace, query: Loaded, form: Subsets, scene: Scene) -> Localization | NoPose:
    vocabulary = query_vocabulary(arguments.map, scene, form, arguments.dictionary)
    search = GroupedOptions(
        min_iterations=min(GroupedOptions().min_iterations, arguments.iterations),
        max_iterations=arguments.iterations,
        max_seconds=arguments.max_seconds or None,
        seed=arguments.seed,
    )
    options = WordOptions(
        max_error_px=arguments.max_error,
        gravity_sigma_deg=arguments.gravity_sigma,
        search=search,
        threads=arguments.workers,
    )
    begun = time.process_time()
    with Bar("searching") as bar:
        found = localize_words(query.camera, query.seen, form, scene, vocabulary, options=options, progress=bar)
    used = time.process_time() - begun
    if isinstance(found, NoPose) and search.max_seconds is not None and used > search.max_seconds:
        told = f"it took {used:.0f} s of the processor, and a search has {search.max_seconds:g} (--max-seconds)"
        return replace(found, reason=f"{found.reason}; {told}")
    return found


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
        "turn_deviation_deg": found.turn_deviation_deg,
        "inliers": found.inliers,
        "correspondences": found.correspondences,
        "log10_nfa": found.log10_nfa,
        "seconds": seconds,
    }


def _pose_line(name: str, found: Localization | NoPose) -> str:
    if isinstance(found, NoPose):
        return f"{name}: no pose: {found.reason}"
    center = " ".join(f"{value:.4f}" for value in found.cam_from_world.center)
    told = f"{name}: camera center {center}, {found.inliers} inliers of {found.correspondences} matches"
    return f"{told}, turn known to {found.turn_deviation_deg:.2f} deg"

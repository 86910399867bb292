"""`veil map` of messages that hide their positions: resumable, several models, images added to an existing map."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Bar, report, say, write_json
from veil.cli.map_gravity import gravity_facts, readings_of, say_gravity
from veil.cli.uploads import Loaded
from veil.errors import InputError
from veil.files.atomic import read_bytes
from veil.files.checkpoints import Checkpoints, run_key
from veil.files.maps import read_map, write_map
from veil.forms import Lines
from veil.mapping.lines import LineMap, LineMapOptions, MatchGraph, NoLineMap, map_from_lines, match_graph
from veil.mapping.lines.incremental import extend_map
from veil.mapping.lines.models import further_maps
from veil.mapping.lines.scenes import LineImage, images_of, model_of, scene_of
from veil.mapping.lines.seed import SeedOptions
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.matching.ratio import calibrated
from veil.scene import Scene

LINES_HELP = "weak scenes: a larger `--aligned-share` where gravity is good, more features (`veil extract --first-octave -1`)"
# Pairs that are matched between two checkpoints.
BATCH = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    """What is mapped: new images, and the map that they are added to, if any."""

    new: Mapping[str, LineImage]
    base: Scene | None

    @property
    def images(self) -> dict[str, LineImage]:
        """New and old ones."""
        return {**(images_of(self.base) if self.base else {}), **self.new}

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs to match: all, but two images of the base know each other's features already."""
        old = set(self.base.images) if self.base else set()
        return [(a, b) for a, b in all_pairs(sorted(self.images)) if not (a in old and b in old)]


def map_messages(arguments: argparse.Namespace, loaded: Mapping[str, Loaded], skipped: Mapping[str, str]) -> int:
    """The whole command, once the messages are read; `skipped` says why others are no part of it."""
    new = _with_lines(loaded)
    digests = _digests(arguments.input, skipped)
    base = read_map(arguments.add_to) if arguments.add_to else None
    job = _Job(new=new, base=base)
    if base and (known := sorted(set(base.images) & set(new))):
        raise InputError(f"the map already has {', '.join(known[:3])}; give new messages only")
    max_ratio = _max_ratio(arguments.ratio, job)
    options = LineMapOptions(seed=SeedOptions(seed=arguments.seed, gravity_sigma_deg=arguments.gravity_sigma))
    key = run_key([*digests, repr(options).encode(), str(max_ratio).encode(), str(arguments.add_to).encode()])
    checkpoints = Checkpoints(arguments.output.with_name(arguments.output.name + ".unfinished"), key)
    matches = _matched(job, arguments.workers, checkpoints)
    images = job.images
    graph = match_graph(
        {name: len(image.form) for name, image in images.items()},
        {pair: found.indices for pair, found in matches.items()},
        ratios={pair: found.ratios for pair, found in matches.items()},
        max_ratio=max_ratio,
    )
    found = _mapped(job, graph, options, checkpoints)
    scenes = [scene_of(found, images)]
    if base is None:
        views = {name: image.view for name, image in images.items()}
        with Bar("mapping the rest") as bar:
            scenes += [scene_of(item, images) for item in further_maps(views, graph, found, options=options, progress=bar)]
    write_map(arguments.output, scenes[0])
    for number, scene in enumerate(scenes[1:], start=2):
        write_map(arguments.output / "models" / str(number), scene)
    checkpoints.remove()
    _tell(arguments, found, scenes, images, skipped)
    return 0


def _with_lines(images: Mapping[str, Loaded]) -> dict[str, LineImage]:
    """The images as mapping from lines needs them."""
    return {
        name: LineImage(camera=image.camera, lines=image.seen, form=image.form)
        for name, image in images.items()
        if isinstance(image.seen, Lines)
    }


def _digests(path: Path, skipped: Mapping[str, str]) -> list[bytes]:
    """What identifies the messages of a run, those that were `skipped` left out: some cannot even be read."""
    files = sorted(file for file in path.glob("*.veil") if file.name not in skipped) if path.is_dir() else [path]
    return [file.name.encode() + hashlib.sha256(read_bytes(file)).digest() for file in files]


def _max_ratio(text: str | None, job: _Job) -> float:
    """Which matches may start a track: below the calibrated ratio where there is one, else all."""
    forms = [image.form for image in job.images.values()]
    if text in (None, "auto"):
        try:
            return calibrated(forms[0], forms[-1])
        except InputError:
            if text == "auto":
                raise
            return 1.01
    if text == "none":
        return 1.01
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not 0 < value <= 1:
        raise InputError(f"--ratio takes none, auto or a number in (0, 1], got {text!r}")
    return value


def _matched(job: _Job, workers: int, checkpoints: Checkpoints) -> dict[tuple[str, str], Matches]:
    """Matches of all pairs, those of an earlier run included."""
    forms = {name: image.form for name, image in job.images.items()}
    found = checkpoints.matches()
    todo = [pair for pair in job.pairs() if pair not in found]
    total = len(todo) + len(found)
    with Bar("matching") as bar:
        for batch in _batches(todo):
            done = len(found)
            part = match_pairs(forms, batch, workers=workers, progress=lambda n, _, done=done: bar(done + n, total))  # type: ignore[misc]
            checkpoints.save_matches(part)
            found |= part
    return found


def _batches(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for start in range(0, len(pairs), BATCH):
        yield pairs[start : start + BATCH]


def _mapped(job: _Job, graph: MatchGraph, options: LineMapOptions, checkpoints: Checkpoints) -> LineMap:
    views = {name: image.view for name, image in job.images.items()}
    with Bar("mapping") as bar:
        if job.base is not None:
            tracks, model = model_of(job.base, graph)
            return extend_map(views, graph, tracks=tracks, model=model, options=options, progress=bar)
        found = map_from_lines(
            views, graph, options=options, resume=checkpoints.model(), checkpoint=checkpoints.save_model, progress=bar
        )
    if isinstance(found, NoLineMap):
        raise InputError(f"no map: {found.reason}; {LINES_HELP}")
    return found


def _tell(
    arguments: argparse.Namespace,
    found: LineMap,
    scenes: list[Scene],
    images: Mapping[str, LineImage],
    skipped: Mapping[str, str],
) -> None:
    scene = scenes[0]
    check = readings_of(
        scene, {name: image.view.lines.gravity for name, image in images.items() if image.view.lines.gravity is not None}
    )
    facts = {
        "images": len(images),
        "skipped": dict(skipped),
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "public": scene.is_public,
        "lines": True,
        "models": [sorted(item.images) for item in scenes],
        "refused": dict(found.refused),
        "check": found.check.as_json(),
        "gravity": gravity_facts(check),
    }
    write_json(arguments.json, facts)
    say_gravity(arguments, check)
    for name, reason in sorted(found.refused.items()):
        say(arguments, f"{name} is not in the map: {reason}")
    say(
        arguments,
        f"{facts['registered']} of {facts['images']} images, {facts['points']} points from lines alone, "
        f"{scene.mean_reprojection_error_px:.2f} px mean distance to the lines",
    )
    say(arguments, found.check.described())
    for doubt in found.check.doubts:
        say(arguments, f"do not rely on it: {doubt}")
    for number, item in enumerate(scenes[1:], start=2):
        say(arguments, f"model {number}: {len(item.images)} more images that share too little with the first")
    report(arguments, arguments.output, "the private map")

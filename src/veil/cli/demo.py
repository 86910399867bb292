"""`veil demo`: the whole path on bundled photographs, with a report."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil import randomness as chance
from veil.attacks.intersection.repeat import intersect
from veil.cli.common import Bar, add_command, add_json, at_least, progress, quiet_colmap, report, say, write_json
from veil.cli.progress import tracker
from veil.extraction.segments import vertical_of
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.atomic import write_bytes, write_text
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.examples import Example, lund_door, other_place
from veil.files.features import write_features
from veil.files.pictures import find_pictures, read_picture, read_rgb
from veil.geometry.vanishing_point import Vertical
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import paper
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.report.demo import LineStory, page
from veil.studies.localization.held_out import Outcome, Query, Study, Variant, demo_variants, run
from veil.studies.mapping.reconstruction import Run, Subject, line_views, map_lines

EXAMPLES = """\
  veil demo
  veil demo -o my-report --json demo.json
  veil demo --strangers other-photos/         also try photographs of another place: all should be refused
"""
HELD_OUT = ("DSC_0003.jpg", "DSC_0006.jpg", "DSC_0010.jpg")
REPEAT_M, REPEAT_FEATURES, REPEAT_TOLERANCE = 4, 200, 1e-4


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil demo` to the parser's commands."""
    parser = add_command(
        commands,
        "demo",
        "the whole path on bundled photographs",
        "Map nine photographs of a portal, hold three out, localize these raw and through private forms, and write a\n"
        "page with the errors, the uploads, pictures of the matches and a plain statement of what is not protected.",
        EXAMPLES,
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("veil-demo"), metavar="FOLDER", help="default veil-demo")
    parser.add_argument("--strangers", type=Path, metavar="FOLDER", help="photographs of another place, to be refused")
    parser.add_argument("--max-features", type=int, default=1536, help="per image (default %(default)s)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time (default 2)")
    add_json(parser)
    parser.set_defaults(run=_demo)


@dataclass(frozen=True, kw_only=True)
class _Material:
    """The demo's photographs: features and gravity by name, features of strangers, and paths of all pictures."""

    example: Example
    features: dict[str, Features]
    strangers: dict[str, Features]
    gravity: dict[str, np.ndarray]
    paths: dict[str, Path]


def _demo(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    start = time.perf_counter()
    with _material(arguments) as material, tempfile.TemporaryDirectory(prefix="veil-demo-") as workdir:
        study = Study(
            mapped={name: item for name, item in material.features.items() if name not in HELD_OUT},
            references=material.example.poses,
            codebook=bundled_codebook(),
            decoys=bundled_decoys(),
            # The demo has a secret of its own: it releases photographs under many profiles, which a client must never do.
            chance=chance.memoized(chance.Secret.generate()),
            workdir=Path(workdir),
            workers=arguments.workers,
        )
        outcomes, strangers = _outcomes(study, material)
        extent = _extent(material.example)
        lines = _from_lines(material, arguments.workers)
        html = page(
            outcomes,
            strangers,
            extent=extent,
            read_rgb=lambda name: read_rgb(material.paths[name]),
            repeat=_repeat(study, material.features[HELD_OUT[0]]),
            lines=lines,
            seconds=time.perf_counter() - start,
        )
    write_text(arguments.output / "report.html", html)
    _write_releases(arguments.output, outcomes, material)
    records = {
        "queries": [o.as_json() for o in outcomes],
        "strangers": [o.as_json() for o in strangers],
        "lines": lines.run.as_json(),
    }
    write_json(arguments.json, records)
    if str(arguments.json) != "-":
        _print(outcomes, strangers, extent)
        _print_lines(lines.run, extent)
    report(arguments, arguments.output / "report.html", "the report")
    uploads = arguments.output / "uploads"
    say(arguments, f"what can the server see? veil audit {uploads / 'hardened-m4'} --images {arguments.output / 'features.h5'}")
    return 0


def _write_releases(folder: Path, outcomes: list[Outcome], material: _Material) -> None:
    """Write the messages of the held-out photographs to the public map, a folder a form, and their raw features."""
    for outcome in outcomes:
        variant = outcome.variant
        if outcome.message is None or variant.distance == "s2s":
            continue
        form = "words" if variant.profile is None else f"{variant.profile.name}-m{variant.profile.m}"
        write_bytes(folder / "uploads" / form / f"{Path(outcome.query.name).stem}.veil", outcome.message)
    write_features(folder / "features.h5", [(name, material.features[name]) for name in HELD_OUT])


@contextmanager
def _material(arguments: argparse.Namespace) -> Iterator[_Material]:
    """The photographs with their extracted features; pictures can be read within the block."""
    options = SiftOptions(max_features=arguments.max_features)
    with lund_door() as example, other_place() as elsewhere:
        bundled = {path.name: path for path in find_pictures(example.folder)}
        foreign = {elsewhere.name: elsewhere}
        for path in find_pictures(arguments.strangers) if arguments.strangers else []:
            foreign[str(path) if path.name in bundled or path.name in foreign else path.name] = path
        features, strangers, gravity = {}, {}, {}
        for name, path in progress([*bundled.items(), *foreign.items()], "extracting"):
            if name in foreign:
                strangers[name] = extract_sift(read_picture(path), options)
            else:
                picture = read_picture(path, camera=example.camera)
                features[name] = extract_sift(picture, options)
                vertical = vertical_of(picture, calibrated=True)
                if isinstance(vertical, Vertical):
                    gravity[name] = vertical.gravity.direction
        yield _Material(example=example, features=features, strangers=strangers, gravity=gravity, paths=bundled | foreign)


def _outcomes(study: Study, material: _Material) -> tuple[list[Outcome], list[Outcome]]:
    """Outcomes of all variants for the held-out photographs, and for the strangers."""
    queries = [Query(name=n, features=material.features[n], reference=material.example.poses[n]) for n in HELD_OUT]
    others = [Query(name=n, features=f, reference=None) for n, f in material.strangers.items()]
    variants = demo_variants(len(study.codebook))
    with tracker("demo", len(variants) * (len(queries) + len(others))) as bar:
        done = []
        for outcome in run(study, [*queries, *others], variants, progress=bar.set_description):
            bar.update()
            done.append(outcome)
    return [o for o in done if o.query.reference is not None], [o for o in done if o.query.reference is None]


def _from_lines(material: _Material, workers: int) -> LineStory:
    """The map of all photographs from lines alone, with gravity estimated from their own edges."""
    names = sorted(material.features)
    with Bar("mapping from lines") as bar:
        forms = {name: publish(material.features[name]) for name in names}
        subject = Subject(
            name="lund_door",
            features=material.features,
            matches=match_pairs(forms, all_pairs(names), workers=workers, progress=bar),
            reference=material.example.poses,
            gravity=material.gravity,
            gravity_is_measured=True,
        )
        found = map_lines(subject, seed=0)
    shown = HELD_OUT[1]
    view = line_views(subject, seed=0)[shown]
    return LineStory(run=found, reference=material.example.poses, name=shown, view=view)


def _extent(example: Example) -> float:
    """Diagonal of the box around the reference cameras, in units of the reference, which has no other scale."""
    centers = np.array([pose.center for pose in example.poses.values()])
    return float(np.linalg.norm(centers.max(axis=0) - centers.min(axis=0)))


def _repeat(study: Study, features: Features) -> dict:
    """Release the same features twice, afresh and memoized, and count the descriptors that the two releases together reveal."""
    profile = paper(REPEAT_M, "sub-hybrid")
    few = _first(features, REPEAT_FEATURES)
    truth = publish(few).vectors.astype(np.float64)
    counts = {}
    for kind in ("fresh", "memoized"):
        sources = (chance.fresh(), chance.fresh()) if kind == "fresh" else (study.chance, study.chance)
        forms = [lift(few, profile=profile, codebook=study.codebook, decoys=study.codebook, chance=s).form for s in sources]
        found = intersect(forms)
        counts[kind] = int((np.linalg.norm(found.points - truth, axis=1) < REPEAT_TOLERANCE).sum())
    return {
        "features": len(few),
        "m": REPEAT_M,
        "tolerance": f"{REPEAT_TOLERANCE:g}",
        "recovered_fresh": counts["fresh"],
        "recovered_memoized": counts["memoized"],
    }


def _first(features: Features, count: int) -> Features:
    return Features(
        keypoints=features.keypoints[:count],
        descriptors=features.descriptors[:count],
        space=features.space,
        camera=features.camera,
        image_digest=features.image_digest,
    )


def _print_lines(run: Run, extent: float) -> None:
    if run.position is None or run.leak is None:
        print(f"mapped from lines alone: {run.reason}")
        return
    print(
        f"mapped from lines alone: {run.registered} of {run.total} photographs, {len(run.points)} points, median position "
        f"error {100 * run.position.median / extent:.2f} %; the server can now name {run.leak.share:.0%} of the hidden "
        f"positions to {run.leak.median_px:.1f} px"
    )


def _print(outcomes: list[Outcome], strangers: list[Outcome], extent: float) -> None:
    print(
        f"{'what was sent, and to which map':32} {'localized':>9} {'pos. error':>10} {'rot. error':>10} {'upload':>8} refused"
    )
    variants: list[Variant] = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    for variant in variants:
        mine = [o.as_json() for o in outcomes if o.variant == variant]
        others = [o.as_json() for o in strangers if o.variant == variant]
        found = [row for row in mine if row["status"] == "localized"]
        position = f"{100 * np.median([r['position_error'] for r in found]) / extent:.2f} %" if found else "none"
        turn = f"{np.median([r['rotation_error_deg'] for r in found]):.2f} deg" if found else "none"
        upload = f"{np.median([r['upload_bytes'] for r in mine]) / 1e3:.0f} kB"
        refused = f"{sum(row['status'] == 'no pose' for row in others)} of {len(others)}"
        print(f"{variant.label:32} {f'{len(found)} of {len(mine)}':>9} {position:>10} {turn:>10} {upload:>8} {refused}")
    print("Lifting is an obfuscation without proof; the report says what it does not protect.")

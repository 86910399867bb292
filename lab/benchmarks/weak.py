"""Maps of weak scenes: photographs whose features are dropped until the best four images share a given number of tracks.

    python lab/benchmarks/weak.py fox strecha/castle-P19 strecha/fountain-P11 --shared 200 100 50 --seeds 2
    python lab/benchmarks/weak.py smartphone_monstree --camera SIMPLE_RADIAL,1254.6,567,756,0.0027
    python lab/benchmarks/weak.py strecha/entry-P10 --methods raw subspaces words --shared 0 200 100 50 --first-octave 0
    python lab/benchmarks/weak.py strecha/entry-P10 --methods lines lines-noise lines-aligned

Scenes are folders as `veil evaluate reconstruction` takes them. For every scene, number of shared tracks and seed, the features
that are left are matched anew. Plain pycolmap (ratio test at 0.8, known intrinsics held) maps them, and so does each of veil's
methods that `--methods` names: `lines` (`ceiling`: the images that lines register at most, if every pose is true), or maps of
positions as `veil map` makes them from `raw` features, `subspaces` (hardened) or `words` (16,384 words, m = 2, epsilon 10).
`--shared 0` leaves the scene whole. A row gives images registered, images off by more than 5 % of the extent of the reference's
camera centers, the median position error as a share of it, and seconds. Processor time is that of verification and mapping, of
subspaces and words also of the release and of matching. A table of all rows ends the output; rows that `--json` stored are
printed again by `--table rows.json ...` without any run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import resource
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from ceiling import ceiling
from tqdm import tqdm

from veil.cli.common import quiet_colmap
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Form
from veil.ldp.mechanism import SubsetMechanism
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.lines import LineOptions
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.mechanisms.words import to_words
from veil.randomness import seeded
from veil.trials.line_maps import MappableScene, map_lines
from veil.trials.reconstruction_run import Run
from veil_lab.cli.evaluate.reconstruction import subject_of
from veil_lab.files.scenes import read_scene
from veil_lab.studies.mapping.reconstruction import map_checked, map_points
from veil_lab.studies.mapping.thinning import thin

WRONG_SHARE = 0.05
EPSILON = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="*")
    parser.add_argument("--shared", type=int, nargs="+", default=[200, 100, 50], help="tracks of the best four images")
    parser.add_argument("--seeds", type=int, default=5, help="thinnings of each scene (default 5)")
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=["lines"], help="beside plain pycolmap")
    parser.add_argument("--max-features", type=int, default=8192)
    parser.add_argument("--camera", metavar="MODEL,P1,...", help="intrinsics of a scene without reference cameras")
    parser.add_argument("--gravity", type=Path, metavar="CSV", help="readings instead of the scene's own or exact ones")
    parser.add_argument("--cache", type=Path, help="a folder that keeps extracted and matched scenes between runs")
    parser.add_argument("--json", type=Path, help="write the rows here, as they are done")
    parser.add_argument("--table", type=Path, nargs="+", help="rows that --json wrote: print their table and end")
    parser.add_argument("--first-octave", type=int, default=-1, help="default -1, as COLMAP")
    parser.set_defaults(workers=1, json_to_stdout=False)
    arguments = parser.parse_args()
    if arguments.table:
        print(table([row for path in arguments.table for row in json.loads(path.read_text())]))
        return
    if not arguments.scenes:
        parser.error("name a scene, or rows with --table")
    quiet_colmap()
    rows: list[dict] = []
    for folder in arguments.scenes:
        whole = whole_subject(folder, arguments)
        for shared in arguments.shared:
            for seed in tqdm(range(arguments.seeds), desc=f"{whole.name} {shared}", leave=False):
                subject, kept = (whole, 1.0) if shared == 0 else thinned_subject(whole, shared=shared, seed=seed)
                for method in ["pycolmap", *arguments.methods]:
                    start = _processor_seconds()
                    run = METHODS[method](subject, seed)
                    row = {"shared": shared, "kept": kept, **_row(run, method), "processor_s": _processor_seconds() - start}
                    rows.append(row)
                    tqdm.write(_line(row))
                    if arguments.json:
                        arguments.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))


def table(rows: list[dict]) -> str:
    """Table with a line for each scene, number of shared tracks and method, over all seeds; errors are the worst of any run."""
    cells: dict[tuple, list[dict]] = {}
    for row in rows:
        cells.setdefault((row["scene"], row["shared"] or "all", row["method"]), []).append(row)
    lines = [
        "| scene | shared | method | runs | registered | wrong | worst median | processor s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (scene, shared, method), own in cells.items():
        least, most = (extreme(row["registered"] for row in own) for extreme in (min, max))
        registered = f"{least if least == most else f'{least} to {most}'} of {own[0]['total']}"
        medians = [row["median_share"] for row in own if row["median_share"] is not None]
        lines.append(
            f"| {scene} | {shared} | {method} | {len(own)} | {registered} "
            f"| {sum(row['wrong'] for row in own)} | {f'{100 * max(medians):.2f} %' if medians else ''} "
            f"| {sum(row['processor_s'] for row in own) / len(own):.1f} |"
        )
    return "\n".join(lines)


def thinned_subject(whole: MappableScene, *, shared: int, seed: int) -> tuple[MappableScene, float]:
    """Scene with features dropped and matched anew, and the share of features that is left."""
    thinned = thin(whole.features, whole.matches, shared_tracks=shared, seed=seed)
    forms = {name: publish(item) for name, item in thinned.features.items()}
    matches = match_pairs(forms, all_pairs(sorted(forms)))
    return replace(whole, features=thinned.features, matches=matches), thinned.kept


METHODS: dict[str, Callable[[MappableScene, int], Run]] = {
    "pycolmap": lambda subject, seed: map_points(subject, seed=seed),
    "lines": lambda subject, seed: map_lines(subject, seed=seed),
    "raw": lambda subject, seed: map_checked(subject, seed=seed),
    "subspaces": lambda subject, seed: _lifted(subject, seed),
    "words": lambda subject, seed: _worded(subject, seed),
    "lines-noise": lambda subject, seed: map_lines(subject, seed=seed, gravity_noise_deg=1.0),
    "ceiling": ceiling,
    "lines-aligned": lambda subject, seed: map_lines(subject, seed=seed, rule=LineOptions(aligned_share=0.75)),
}


def lifted(subject: MappableScene, seed: int) -> dict[str, Form]:
    """The subject's features in subspaces, by the hardened default."""
    book, decoys = bundled_codebook(), bundled_decoys()
    profile = Profile.hardened(quantized=True)
    return {
        name: lift(
            item, profile=profile, compression=book.compression, decoys=decoys, randomness=seeded(f"weak {subject.name} {seed}")
        ).form
        for name, item in subject.features.items()
    }


def _lifted(subject: MappableScene, seed: int) -> Run:
    """Map from hardened subspaces, matched by the distance between subspaces."""
    return _released(subject, lifted(subject, seed), seed)


def _worded(subject: MappableScene, seed: int) -> Run:
    """Map from words alone."""
    book = bundled_codebook()
    mechanism = SubsetMechanism(dictionary_size=len(book), epsilon=EPSILON, m=2)
    forms = {
        name: to_words(item, mechanism=mechanism, dictionary=book, randomness=seeded(f"weak {subject.name} {seed}")).form
        for name, item in subject.features.items()
    }
    return _released(subject, forms, seed)


def _released(subject: MappableScene, forms: Mapping[str, Form], seed: int) -> Run:
    matches = match_pairs(forms, all_pairs(sorted(forms)))
    return map_checked(subject, forms=forms, matches=matches, seed=seed)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def whole_subject(folder: Path, arguments: argparse.Namespace) -> MappableScene:
    """A scene with features, matches and reference cameras, from the folder `--cache` if it holds them."""
    if arguments.cache is None:
        return _whole(folder, arguments)
    setting = f"{folder.resolve()} {arguments.max_features} {arguments.camera} {arguments.gravity}"
    setting += "" if arguments.first_octave == -1 else f" {arguments.first_octave}"
    key = hashlib.blake2b(setting.encode(), digest_size=8).hexdigest()
    path = arguments.cache / f"{folder.name}-{key}.pickle"  # written and read by this benchmark alone
    if not path.exists():
        arguments.cache.mkdir(parents=True, exist_ok=True)
        subject = _whole(folder, arguments)
        with tempfile.NamedTemporaryFile(dir=arguments.cache, delete=False) as file:
            pickle.dump(subject, file)
        Path(file.name).rename(path)
    return pickle.loads(path.read_bytes())


def _whole(folder: Path, arguments: argparse.Namespace) -> MappableScene:
    subject = subject_of(read_scene(folder), arguments, first_octave=arguments.first_octave)
    if subject.reference:
        return subject
    run = map_points(subject)  # no reference cameras: plain pycolmap on all features is the reference
    if run.reason:
        raise SystemExit(f"{folder} has no reference cameras, and pycolmap found none: {run.reason}")
    return replace(subject, reference=run.cam_from_world)


def _row(run: Run, method: str) -> dict:
    shares = np.array([position / run.extent for position, _ in run.errors.values()]) if run.extent else np.empty(0)
    return {
        "scene": run.scene,
        "method": method,
        "seed": run.seed,
        "registered": run.registered,
        "total": run.total,
        "wrong": int((shares > WRONG_SHARE).sum()),
        "median_share": float(np.median(shares)) if len(shares) else None,
        "seconds": run.seconds["map"],
        "check": run.check and run.check.as_json(),
        "reason": run.reason,
    }


def _line(row: dict) -> str:
    error = "      -" if row["median_share"] is None else f"{row['median_share']:7.2%}"
    return (
        f"{row['scene']:16} {row['shared']:4} shared ({row['kept']:4.0%} kept)  seed {row['seed']}  {row['method']:13} "
        f"{row['registered']:2}/{row['total']:<2}  {row['wrong']:2} wrong  median {error}  {row['seconds']:6.1f} s "
        f"({row['processor_s']:.1f} s processor)" + (f"  {row['reason']}" if row["reason"] else "")
    )


if __name__ == "__main__":
    main()

"""Decoys that serve several features: what the intersection attack finds without the pool, and how well uploads match.

    python lab/benchmarks/decoy_reuse.py strecha/fountain-P11 --pool pool.npz
    python lab/benchmarks/decoy_reuse.py strecha/castle-P19 --photographs 3 --others 9

Photographs of the scene are released in the hardened profile, with all features or with those that `veil privatize` sends by
default, and decoys from pools of several sizes in several runs. `reuse` is the mean number of features of one image that a
decoy serves. The attacker has no pool: it sees one upload, or those of the neighboring photographs beside it, and names decoys
where subspaces meet. A cell gives percent of features within 0.1 / 0.2 / 0.4 of their descriptors. `verified` counts the
matches of all pairs of these photographs that an epipolar geometry explains, by `match`, and by nearest neighbors without a
look beyond shared decoys; the last line is that of raw descriptors. The pool must not come from photographs of the scene.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from veil.attacks.attack import attempted
from veil.attacks.matches.matched_views import MatchedViewOptions, epipolar_inliers
from veil.attacks.registry import named
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.audit.ground_truth import in_space
from veil.cli.common import quiet_colmap
from veil.codebooks.codebook import Codebook
from veil.extraction.sift import extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.forms import Form, Subspaces
from veil.matching import match, neighbors
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import EVERYTHING, Selection, selected_rows
from veil.randomness import seeded
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Upload

SOURCE = seeded("decoy reuse")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path, help="a folder with images/, whose neighbors in name are neighbors in place")
    parser.add_argument("--pool", type=Path, help="real descriptors, at best 150,000; default: the bundled 32,768")
    parser.add_argument("--photographs", type=int, default=3, help="attacked (default %(default)s)")
    parser.add_argument("--others", type=int, default=4, help="uploads beside each (default %(default)s)")
    parser.add_argument("--features", type=int, default=200, help="attacked of each (default %(default)s)")
    arguments = parser.parse_args()
    quiet_colmap()
    pool = read_codebook(arguments.pool) if arguments.pool else bundled_decoys()
    paths = find_pictures(arguments.scene / "images")[: max(arguments.others + 1, arguments.photographs)]
    features = {path.name: extract_sift(read_picture(path)) for path in paths}
    mixed = np.ascontiguousarray(pool.stored[np.random.default_rng(0).permutation(len(pool))])
    sizes = sorted({min(len(pool), size) for size in (16384, 32768, len(pool))})
    print("| features | words | runs | reuse | one upload | with the others | verified | without a look beyond |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    # Of all features only the pools that were usual: attacks on what shares everything with everything take minutes.
    cases = [(EVERYTHING, size, runs) for size, runs in ((32768, 32), (len(pool), 16), (len(pool), 1)) if size <= len(pool)]
    cases += [(Selection(), size, runs) for size in sizes for runs in (32, 16, 8, 4, 1)]
    for selection, size, runs in dict.fromkeys(cases):
        row(features, replace(pool, stored=mixed[:size], slices=runs), selection, arguments)
    sent = {name: item.take(selected_rows(item, Selection(), SOURCE)) for name, item in features.items()}
    count = verified({name: (publish(item), item.keypoints) for name, item in sent.items()})
    print(f"| raw, as many | - | - | - | - | - | {count} | - |")


def row(features: Mapping[str, Features], pool: Codebook, selection: Selection, arguments: argparse.Namespace) -> None:
    """Print the row of one pool and selection."""
    book, profile = bundled_codebook(), Profile.hardened(quantized=True)
    images: dict[str, ReleasedImage] = {}
    truths: dict[str, np.ndarray] = {}
    reuse = []
    for name, item in features.items():
        made = privatize(
            item,
            profile=profile,
            compression=book.compression,
            decoys=pool,
            randomness=SOURCE,
            selection=selection,
        )
        assert isinstance(made.upload, Upload) and isinstance(made.upload.form, Subspaces)
        form = as_sent(made.upload.form, profile.dtype)
        images[name] = ReleasedImage(form=form, camera=item.camera, keypoints=made.upload.keypoints)
        truths[name] = in_space(item, form.space, book)[made.order]
        reuse.append(made.decoy_reuse)
    cells = [attacked(images, truths, count, arguments) for count in (0, arguments.others)]
    seen = {name: (image.form, image.keypoints) for name, image in images.items() if image.keypoints is not None}
    looked = verified(seen)
    usual, neighbors.SHARED_DECOYS = neighbors.SHARED_DECOYS, 1.0
    plain = verified(seen)
    neighbors.SHARED_DECOYS = usual
    sent = "all" if selection == EVERYTHING else f"{selection.features}"
    print(
        f"| {sent} | {len(pool)} | {pool.slices} | {np.mean(reuse):.2f} | {' | '.join(cells)} | {looked} | {plain} |",
        flush=True,
    )


def attacked(
    images: Mapping[str, ReleasedImage], truths: Mapping[str, np.ndarray], others: int, arguments: argparse.Namespace
) -> str:
    """Percent within 0.1 / 0.2 / 0.4 that the intersection attack recovers without the pool, from the first photographs."""
    errors: list[np.ndarray] = []
    names: Sequence[str] = list(images)
    for place, name in enumerate(names[: arguments.photographs]):
        near = sorted((other for other in names if other != name), key=lambda other: abs(names.index(other) - place))
        knowledge = Knowledge(
            codebook=bundled_codebook(),
            decoys=None,
            database=replace(bundled_codebook(), slices=1),
            others={other: images[other] for other in near[:others]},
        )
        rows = Effort(features=arguments.features).rows(len(images[name].form), name)
        outcome = attempted(named("intersection")[0], Target(image=images[name], rows=rows, knowledge=knowledge))
        estimates = getattr(outcome, "estimates", None)
        assert estimates is not None, outcome
        errors.append(np.linalg.norm(estimates.points - truths[name][rows], axis=1))
    error = np.concatenate(errors)
    return " / ".join(f"{100 * (error <= limit).mean():.1f}" for limit in (0.1, 0.2, 0.4))


def verified(images: Mapping[str, tuple[Form, np.ndarray]]) -> int:
    """Number of matches of all pairs of images that an epipolar geometry explains."""
    total = 0
    for first, second in combinations(images, 2):
        (left, a), (right, b) = images[first], images[second]
        matches = match(left, right).indices
        agrees = epipolar_inliers(
            a[matches[:, 0]].astype(np.float64), b[matches[:, 1]].astype(np.float64), options=MatchedViewOptions()
        )
        total += int(agrees.sum())
    return total


if __name__ == "__main__":
    main()

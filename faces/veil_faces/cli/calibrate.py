"""`veil faces calibrate`: fit the thresholds of a store to faces."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import say, say_table, write_json
from veil.cli.records import option, positional
from veil.errors import InputError
from veil.report.tables import Table, Words, fixed, interval, numbers, percent
from veil_faces.cli.asked_store import AskedDecoys, AskedStore, client_of
from veil_faces.collection import IDENTITY, FacePairs, Faces
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_pairs import read_pairs
from veil_faces.files.face_store import FaceStore, Threshold
from veil_faces.files.faces import identities, read_faces
from veil_faces.identification import GallerySize, OpenSet, people_needed
from veil_faces.template import FaceClient, TemplateScheme, scores

PAIRS_HELP = "CSV, LFW's pairs.txt, lines `same a b` (AgeDB-30), or a split of CFP (Protocol/Split/FP)"
PURPOSE = "calibration"


@dataclass(frozen=True, kw_only=True)
class Calibrate(AskedDecoys):
    """Fit the threshold on pairs of faces, by this store's lifting, m and distance: that of the most right decisions, or
    of the most accepts at a given share of false ones. Nothing is verified before. Stores that can identify get
    thresholds by size of the gallery as well, from all people among the faces, each a stranger to the others: at most
    --fpir of strangers are accepted, by the upper end of a 95 % interval.
    """

    faces: Path = positional("descriptors of the pairs' faces")
    face_pairs: Path = option(PAIRS_HELP, required=True, metavar="FILE")
    far: float | None = option("verify: false accepts at most, for example 0.001", metavar="SHARE")
    fpir: float = option(
        "identify: share of strangers who may be accepted, by a gallery of any size (default %(default)s)",
        default=0.01,
        metavar="SHARE",
    )


def calibrate(arguments: Calibrate) -> int:
    """Run `veil faces calibrate` and return the exit code."""
    for name, share in (("--far", arguments.far), ("--fpir", arguments.fpir)):
        if share is not None and not 0 < share < 1:
            raise InputError(f"{name} must lie between 0 and 1, got {share:g}")
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    faces, client = identities(read_faces(arguments.faces)), client_of(store, arguments.decoys)
    pairs = read_pairs(arguments.face_pairs, faces)
    threshold = _threshold(client, faces, pairs, arguments.far)
    valid = [line.purpose for line in store.enrolled() if line.valid]
    counts = sorted({valid.count(purpose) for purpose in valid})
    open_set = None if store.scheme.comparison == "parallel" else _open_set(client, faces, arguments.fpir, counts)
    store.calibrate(threshold, open_set)
    write_json(
        arguments.json,
        {**threshold.as_json(), "identification": None if open_set is None else open_set.as_record()},
        private=True,
    )
    say(
        arguments,
        f"threshold {threshold.distance:.3f}: {threshold.false_accepts:.2%} false accepts and {threshold.false_rejects:.2%} "
        f"false rejects on {len(pairs)} pairs, on which it was fitted",
    )
    if open_set is None:
        say(arguments, "this store verifies only: its probes fit one template each (--by parallel)")
    else:
        print_sizes(arguments, open_set, counts)
    return 0


def _threshold(client: FaceClient, faces: Faces, pairs: FacePairs, far: float | None) -> Threshold:
    """The threshold of single comparisons: with the most right decisions, or the most accepts at `far` false ones."""
    from veil_faces.studies.verification import best_threshold, error_rates

    distance = np.array([_score(client, faces, a, b) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)])
    limit = best_threshold(distance, pairs.same)
    if far is not None:
        accepts, _ = error_rates(distance, pairs.same)
        steps = np.unique(distance)
        allowed = np.flatnonzero(accepts[1:] <= far)
        if not len(allowed):
            raise InputError(f"no threshold keeps false accepts to {far:g} on these pairs; give more of them")
        limit = float(steps[allowed[-1]])
    return Threshold(
        distance=limit,
        false_accepts=float((distance[~pairs.same] <= limit).mean()),
        false_rejects=float((distance[pairs.same] > limit).mean()),
        pairs=len(pairs),
    )


def _score(client: FaceClient, faces: Faces, enrolled: int, probe: int) -> float:
    """The distance of a probe from a template, of two rows of `faces`."""
    person = faces.names[enrolled]
    template = client.template(faces.vectors[enrolled], purpose=PURPOSE, person=person, version=1)
    return float(scores(client.probe(faces.vectors[probe], purpose=PURPOSE, person=person, template=template), template)[0])


def _open_set(client: FaceClient, faces: Faces, fpir: float, counts: Sequence[int]) -> OpenSet:
    """Thresholds of identification from all people among the faces, also for galleries of the sizes `counts`."""
    from veil_faces.comparisons import compared, first_and_last
    from veil_faces.galleries import calibrate_open_set

    people, _ = faces.classes(IDENTITY)
    first, last = first_and_last(people)
    distance = compared(client, faces, last, first, PURPOSE)
    mated = np.where(first == last, np.nan, np.diagonal(distance))
    return calibrate_open_set(distance, people[last], people[first], mated=mated, fpir=fpir, wanted=counts)


def print_what_is_needed(arguments: AskedStore, scheme: TemplateScheme) -> None:
    """Print, after a store is created, how many people a calibration needs by size of the gallery."""
    if scheme.comparison == "parallel":
        say(arguments, "it verifies once calibrated (veil faces calibrate), and cannot identify (--by p2s or s2s can)")
        return
    needs = ", ".join(f"{people_needed(size, 0.01):,} people for {size:,} templates" for size in (20, 1_000, 10_000))
    say(
        arguments,
        "its templates share one rotation: whoever has a copy of some dozens of them, and the decoys, has the faces; where "
        "nobody is to be identified, create it --by parallel",
    )
    say(arguments, f"it identifies once calibrated (veil faces calibrate); to keep strangers to an FPIR of 1 %: {needs}")


def print_sizes(arguments: AskedStore, fitted: OpenSet, counts: Sequence[int]) -> None:
    """Print thresholds by size of the gallery: for the store's own sizes, and for some others."""
    head = f"identify: an FPIR of {fitted.asked:.2%} asked, {fitted.people:,} people, {fitted.mated:,} of them twice"
    if not fitted.sizes:
        need = people_needed(1, fitted.asked)
        say(arguments, f"{head}: too few for any gallery, about {need:,} people are needed; nobody will be identified")
        return
    say(arguments, f"{head}: galleries of up to {fitted.largest:,} templates")
    own = {fitted.at(count).templates for count in counts if 1 <= count <= fitted.largest}
    shown = [size for size in fitted.sizes if size.templates in own or str(size.templates).strip("0") == "1"]
    say_table(arguments, size_table(list(dict.fromkeys([*shown, fitted.sizes[-1]])), own))
    for count in counts:
        if count > fitted.largest:
            need = people_needed(count, fitted.asked)
            say(arguments, f"{count:,} templates of this store: refused, about {need:,} people are needed")


def size_table(sizes: Sequence[GallerySize], own: Container[int]) -> Table:
    """The table of thresholds by the size of the gallery; `own` are the sizes that the store has itself."""
    heads = "templates", "threshold", "FPIR, %", "95 % interval", "FNIR at rank 1, %", "95 % interval"
    return Table(
        columns=[*numbers(*heads), Words("of this store", least=4)],
        rows=[
            (
                f"{size.templates:,}",
                fixed(size.threshold, 3),
                percent(size.fpir, 2),
                interval(size.fpir_low, size.fpir_high, 2),
                percent(size.fnir, 2),
                interval(size.fnir_low, size.fnir_high, 2),
                "yes" if size.templates in own else "",
            )
            for size in sizes
        ],
    )

"""Study of the board: any scene in every form, under one rule of which photographs are mapped and which are queries.

A hash of each photograph's name decides, so that nobody chooses. The others of a scene are mapped from raw features, which
makes the public map that queries are asked on, and from the releases of each form, which makes a private map. Queries are
released in each form and localized, and some of them attacked: alone, with the uploads of the nearest photographs, and with
those of near repeats if the scene has any. Where a scene has no reference cameras, the raw map of all its photographs is the
reference.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding, Score, Share
from veil.audit.run import findings
from veil.codebooks.codebook import Codebook
from veil.device.doors import localize, map_images
from veil.errors import VeilError
from veil.features import Features
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.mechanisms.selection import Selection
from veil.places.built_maps import MappingOptions
from veil.places.maps import MapImage, NoMap
from veil.places.poses.answer import Localization, NoPose
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import Secret, memoized
from veil.scene import Scene
from veil.wire.message import Message
from veil_lab.studies.attacks.aligned_repeats import Alignment, aligned_attacks, alignment_of
from veil_lab.studies.attacks.form_releases import FormOptions, FormPools, FormScene, FormSetting
from veil_lab.studies.board.rows import BoardOptions, BoardRow, BoardScene, MapCounts, NotRun, RecoveredShare
from veil_lab.studies.board.split import SplitScene, poses_of, timed
from veil_lab.studies.localization.answer_counts import counted
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace
from veil_lab.studies.mapping.reconstruction import distinctive, plain_map

BOARD_FORMS = (
    FormSetting(name="raw", descriptors="raw"),
    FormSetting(name="subspaces", descriptors="subspaces", selection=Selection()),
    FormSetting(name="subspaces, lines", descriptors="subspaces", selection=Selection(), lines=True),
    FormSetting(name="words, epsilon 10", descriptors="words", epsilon=10.0, gravity=False),
    FormSetting(name="words, epsilon 5, gravity", descriptors="words", epsilon=5.0),
    FormSetting(name="positions alone", descriptors="words", epsilon=0.0),
)
"""Forms of the board: the defaults of each, and words at an epsilon that localizes with and without gravity."""
COLMAP = "COLMAP, raw"
# Distance within which a descriptor counts as recovered, in parts of its length.
WITHIN = 0.2
# Queries of a scene that are attacked, further uploads beside the attacked one, and processor seconds of each run.
ATTACKED, OTHERS, RUN_SECONDS = 2, 4, 60.0
Sent = Mapping[str, Message | Features]


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardStudy:
    """The study of any number of scenes: what the device, the server and the attacker have, and what is measured.

    - `dictionary`: public words of all releases in words.
    - `attacks`: those of one upload and of several; attacks on aligned near repeats join them.
    """

    pools: FormPools
    dictionary: Codebook
    settings: Sequence[FormSetting] = BOARD_FORMS
    options: BoardOptions = field(default_factory=BoardOptions)
    attacks: Sequence[Attack] = ATTACKS

    def scene(self, place: ReferencePlace, *, progress: StepProgress = ignore_steps) -> BoardScene:
        """The rows of a scene: `place` has its photographs, reference poses if there are any, and gravity where it is known."""
        facts = BoardScene(
            scene=place.name,
            photographs=len(place.features),
            has_reference=bool(place.cam_from_world),
            has_gravity=_has_gravity(place),
        )
        count = StepCount(progress, 2 + len(self.settings))
        try:
            count.begin(f"{place.name}: mapping raw features")
            subject = SplitScene.of(place, self.options.queries_every)
            facts = replace(
                facts,
                mapped=len(subject.mapped),
                queries=len(subject.fold.held_out),
                unjudged=facts.photographs - len(subject.mapped) - len(subject.fold.held_out),
            )
            count.begin(f"{place.name}: {COLMAP}")
            rows = [colmap_row(subject)]
            released = self._released(subject.fold)
            for setting in self.settings:
                count.begin(f"{place.name}: {setting.name}")
                rows.append(self._row(setting, subject, released))
        except VeilError as error:
            return replace(facts, reason=error.cause)
        return replace(facts, rows=rows)

    def _released(self, fold: Fold) -> FormScene:
        key = hashlib.sha256(f"board {self.options.seed} {fold.place.name}".encode()).digest()
        options = FormOptions(
            photographs=ATTACKED,
            others=OTHERS,
            features=self.options.features,
            seconds=RUN_SECONDS,
            seed=self.options.seed,
        )
        return FormScene(fold=fold, pools=self.pools, options=options, words=self.dictionary, secret=memoized(Secret(key)))

    def _row(self, setting: FormSetting, subject: SplitScene, released: FormScene) -> BoardRow:
        if _needs_gravity(setting) and not _has_gravity(subject.fold.place):
            return _unknown(setting.name, "gravity is not known")
        queries = subject.fold.held_out
        try:
            sizes = [released.size(setting, name)[0] for name in queries]
            asked = {name: timed(partial(self._answer, setting, released, name)) for name in queries}
            answers = {name: answer for name, (answer, _) in asked.items()}
            seconds = [spent for _, spent in asked.values()]
            one, five, near = self._recovered(setting, released)
            return BoardRow(
                form=setting.name,
                built=self._map(setting, subject, released),
                answers=counted(answers, subject.reference, subject.fold.reference_from_map),
                one=one,
                five=five,
                near=near,
                upload_bytes=float(np.mean(sizes)),
                query_seconds=float(np.median(seconds[1:] or seconds)),  # the first compiles, and makes the map's index
            )
        except VeilError as error:
            return _unknown(setting.name, error.cause)

    def _answer(self, setting: FormSetting, released: FormScene, name: str) -> Localization | NoPose:
        """The public map's answer to one query. Positions alone are asked near the two nearest mapped photographs."""
        query = released.fold.place.features[name] if setting.descriptors == "raw" else released.released(setting, name)[0]
        near = released.scene_neighbors(name) if setting.epsilon == 0 else None
        return localize(query, released.where, codebook=self.pools.codebook, dictionary=self.dictionary, near=near)

    def _map(self, setting: FormSetting, subject: SplitScene, released: FormScene) -> MapCounts | NotRun:
        """The private map of what the mapped photographs send."""
        if setting.descriptors == "raw":
            return subject.counts(subject.poses, subject.seconds)
        if setting.epsilon == 0:
            return NotRun(reason="no map of positions alone")
        if setting.lines and not _has_gravity(subject.fold.place):
            return NotRun(reason="a map of lines needs gravity")
        sent: Sent = {name: released.released(setting, name)[0] for name in subject.mapped}
        try:
            built, seconds = timed(lambda: map_images(sent, options=MappingOptions(workers=1)))
        except VeilError as error:
            return NotRun(reason=f"no map: {error.cause}")
        return (
            NotRun(reason=f"no map: {built.reason}") if isinstance(built, NoMap) else subject.counts(poses_of(built), seconds)
        )

    def _recovered(self, setting: FormSetting, released: FormScene) -> Iterator[RecoveredShare | NotRun]:
        """What attacks recover with one upload, with those of the nearest photographs, and with near repeats."""
        if setting.descriptors == "raw" or setting.epsilon == 0:
            reason = "all descriptors are sent" if setting.descriptors == "raw" else "no descriptors are sent"
            yield from [NotRun(reason=reason)] * 3
            return
        neighbors = {name: released.neighbors(name) for name in released.victims}
        for others in (dict.fromkeys(neighbors, ()), neighbors):
            examined = [findings(released.attacked(setting, name, some, self.attacks)) for name, some in others.items()]
            yield best(examined, 1 + max(map(len, others.values())))
        repeats = {name: repeats_of(released.fold.place, name, some) for name, some in neighbors.items()}
        repeats = {name: some for name, some in repeats.items() if some}
        if not repeats:
            yield NotRun(reason="no near repeats")
            return
        examined = [
            findings(released.attacked(setting, name, list(some), (*self.attacks, *aligned_attacks(list(some.values())))))
            for name, some in repeats.items()
        ]
        yield best(examined, 1 + max(map(len, repeats.values())))


def colmap_row(subject: SplitScene) -> BoardRow:
    """The row of plain COLMAP on the raw features: its own verification and incremental mapping, and no queries."""

    def mapped() -> Scene | NoMap:
        features = {name: subject.fold.place.features[name] for name in subject.mapped}
        forms = {name: publish(item) for name, item in features.items()}
        images = {n: MapImage(camera=item.camera, keypoints=item.keypoints, form=forms[n]) for n, item in features.items()}
        matches = distinctive(match_pairs(forms, all_pairs(sorted(forms)), workers=1))
        with tempfile.TemporaryDirectory(prefix="veil-board-") as folder:
            return plain_map(images, matches, workdir=Path(folder))[0]

    row = _unknown(COLMAP, "COLMAP only maps here")
    scene, seconds = timed(mapped)
    if isinstance(scene, NoMap):
        return replace(row, built=NotRun(reason=f"no map: {scene.reason}"))
    return replace(row, built=subject.counts({n: image.cam_from_world for n, image in scene.images.items()}, seconds))


def repeats_of(place: ReferencePlace, name: str, others: Sequence[str]) -> dict[str, Alignment]:
    """Those of `others` that are near repeats of a photograph, each with the map from its pixels to those of the photograph."""
    tried = {other: alignment_of(place.features[name], place.features[other]) for other in others}
    return {other: alignment for other, alignment in tried.items() if alignment is not None}


def best(by_photograph: Sequence[Sequence[Finding]], uploads: int) -> RecoveredShare | NotRun:
    """The attack that recovers most descriptors, by the findings on each photograph.

    Oracles do not count. An attack that ran on fewer photographs than another is not the best.
    """
    scores: dict[str, list[Score]] = {}
    for photograph in by_photograph:
        for finding in photograph:
            if finding.score is not None and finding.score.unit != "px" and not finding.hypothetical:
                scores.setdefault(finding.attack, []).append(finding.score)
    most = max(map(len, scores.values()), default=0)
    whole = {attack: parts for attack, parts in scores.items() if len(parts) == most}
    if not whole:
        return NotRun(reason="no attack could be run")
    shares = {attack: _pooled([score.within[WITHIN] for score in parts]) for attack, parts in whole.items()}
    named = [_pooled([score.recovered for score in parts]) for parts in whole.values() if parts[0].unit == "word"]
    attack = max(shares, key=lambda name: shares[name])
    return RecoveredShare(
        attack=attack,
        share=shares[attack],
        features=sum(score.recovered.total for score in whole[attack]),
        photographs=most,
        uploads=uploads,
        named=max(named, default=None),
    )


def _pooled(shares: Sequence[Share]) -> float:
    """The share of the features of several photographs together."""
    return sum(share.count for share in shares) / sum(share.total for share in shares)


def _has_gravity(place: ReferencePlace) -> bool:
    """Whether gravity is known for each photograph of a place."""
    return all(name in place.down for name in place.features)


def _needs_gravity(setting: FormSetting) -> bool:
    """Whether a form is nothing without gravity: words that come with it, and positions alone."""
    return setting.descriptors == "words" and setting.gravity


def _unknown(form: str, reason: str) -> BoardRow:
    """A row without numbers, for one reason."""
    why = NotRun(reason=reason)
    return BoardRow(form=form, built=why, answers=why, one=why, five=why, near=why)

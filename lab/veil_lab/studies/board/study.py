"""Study of the board: any scene in every form, under one rule of which photographs are mapped and which are queries.

A hash of each photograph's name decides, so that nobody chooses. The others of a scene are mapped from raw features, which
makes the public map that queries are asked on, and from the releases of each form, which makes a private map. They are one
folder of one device, which `veil privatize` releases by its defaults: what a map uses leaves in subspaces, and nothing else
(docs/theory/release.md#features-for-a-map). Queries are of other devices. Each is released by itself in each form and
localized. Some are attacked: alone, with the uploads of the nearest photographs, and with those of near repeats if the scene
has any. Where a scene has no reference cameras, the raw map of all its photographs is the reference.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from veil.attacks.attack import Attack
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
from veil.places.poses.options import PositionOptions
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import Secret, memoized
from veil.scene import Scene
from veil.wire.message import Message
from veil_lab.studies.attacks.form_releases import FormOptions, FormPools, FormScene, FormSetting
from veil_lab.studies.board.recovery import SCORED, recovered_shares
from veil_lab.studies.board.rows import BoardOptions, BoardRow, BoardScene, MapCounts, NotRun
from veil_lab.studies.board.split import SplitScene, poses_of, timed
from veil_lab.studies.localization.answer_counts import counted
from veil_lab.studies.localization.false_acceptance import ReferencePlace
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
# Queries of a scene that are attacked, further uploads beside the attacked one, and processor seconds of each run. The first
# run compiles, too.
ATTACKED, OTHERS, RUN_SECONDS = 2, 4, 60.0
# Samples of the search from positions alone, a tenth of the default: with all of them it takes longer than all other forms.
POSITION_SAMPLES = 2_000_000
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
    attacks: Sequence[Attack] = SCORED

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
            count.begin("mapping raw features")
            subject = SplitScene.of(place, self.options.queries_every)
            facts = replace(
                facts,
                mapped=len(subject.mapped),
                queries=len(subject.fold.held_out),
                unjudged=facts.photographs - len(subject.mapped) - len(subject.fold.held_out),
            )
            count.begin(COLMAP)
            rows = [colmap_row(subject)]
            released = self.released(subject)
            for setting in self.settings:
                count.begin(setting.name)
                rows.append(self._row(setting, subject, released))
        except VeilError as error:
            return replace(facts, reason=error.cause)
        return replace(facts, rows=rows)

    def released(self, subject: SplitScene) -> FormScene:
        """Releases of the scene's photographs in each form, by a secret that the seed and the name of the scene give."""
        key = hashlib.sha256(f"board {self.options.seed} {subject.fold.place.name}".encode()).digest()
        options = FormOptions(
            photographs=ATTACKED,
            others=OTHERS,
            features=self.options.features,
            seconds=RUN_SECONDS,
            seed=self.options.seed,
        )
        return FormScene(
            fold=subject.fold,
            pools=self.pools,
            options=options,
            words=self.dictionary,
            chosen=subject.chosen,
            secret=memoized(Secret(key)),
        )

    def _row(self, setting: FormSetting, subject: SplitScene, released: FormScene) -> BoardRow:
        if _needs_gravity(setting) and not _has_gravity(subject.fold.place):
            return _unknown(setting.name, "gravity is not known")
        queries = subject.fold.held_out
        try:
            sizes = [released.size(setting, name)[0] for name in queries]
            asked = {name: timed(partial(self._answer, setting, released, name)) for name in queries}
            answers = {name: answer for name, (answer, _) in asked.items()}
            seconds = [spent for _, spent in asked.values()]
            one, five, near = recovered_shares(released, setting, self.attacks)
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
        return localize(
            query,
            released.where,
            codebook=self.pools.codebook,
            dictionary=self.dictionary,
            near=released.scene_neighbors(name) if setting.epsilon == 0 else None,
            position_options=PositionOptions(upright=replace(PositionOptions().upright, samples=POSITION_SAMPLES)),
        )

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

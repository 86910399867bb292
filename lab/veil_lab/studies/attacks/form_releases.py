"""Releases of held-out photographs in each form, for the study of forms: localized in a public map, and attacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.attacks.attack import Attack
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.positions.pair_network import PairNetwork
from veil.attacks.registry import TIME_SHARES
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.attacks.words.cooccurrence import NeighborModel, PhotographInWords, learn_neighbors
from veil.audit.ground_truth import find_truth
from veil.audit.run import Examined, try_attacks
from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import in_runs
from veil.device.protection import EPSILON, FEATURES, HideInSubspaces, Protection, make, usual_words
from veil.errors import RangeError
from veil.features import Features
from veil.forms import Subsets
from veil.geometry.similarity import pose_error
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.mechanisms.decoy_photographs import PHOTOGRAPHS_M, DecoyPhotographs
from veil.mechanisms.profile import HARDENED_M, Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.mechanisms.selection import EVERYTHING, ChosenFeatures, Selection, usual_selection
from veil.places.held_map import Map
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize
from veil.places.poses.by_words import localize_words
from veil.places.poses.upright import localize_positions
from veil.randomness import Randomness, Secure, fresh
from veil.scene import Scene, mean_down
from veil.wire import decode, encode
from veil.wire.message import LineUpload, Message, Upload
from veil_lab.studies.localization.false_acceptance import Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped, most_words
from veil_lab.studies.localization.upright_localization import tilted

DELTA = 1e-6
WORDS_SENT, DICTIONARY_SIZE = 1000, 4096
# Standard deviation of the tilt of the gravity that is sent beside words with positions.
GRAVITY_SIGMA_DEG = 0.5


@dataclass(frozen=True, kw_only=True)
class FormSetting:
    """One form of a photograph.

    `name` is its name in tables. `descriptors` says what takes their place: "raw" ones (nothing is protected), "subspaces"
    of the hardened profile, or "words". `selection` says which features leave in subspaces, `epsilon` is that of each
    feature in words, of which `words_sent` leave; 0 means positions alone, which are localized near two known images. The
    dictionary is of the mapped photographs, or the `bundled` one. `lines` hides positions. `gravity` says whether gravity
    is sent where it is known: with words beside positions, and with lines. Decoys are drawn one by one, or are those of
    whole `photographs`, and subspaces have the dimension `m`. Raises RangeError for words without an epsilon.
    """

    name: str
    descriptors: Literal["raw", "subspaces", "words"]
    selection: Selection | ChosenFeatures = EVERYTHING
    epsilon: float | None = None
    words_sent: int = WORDS_SENT
    bundled: bool = False
    lines: bool = False
    gravity: bool = True
    photographs: bool = False
    m: int = HARDENED_M

    def __post_init__(self) -> None:
        if (self.descriptors == "words") != (self.epsilon is not None):
            raise RangeError(f"{self.name}: words need an epsilon, and nothing else has one; got {self.epsilon!r}")


FORMS = (
    FormSetting(name="raw", descriptors="raw"),
    FormSetting(name="subspaces of all features", descriptors="subspaces"),
    FormSetting(name="subspaces", descriptors="subspaces", selection=Selection()),
    FormSetting(name="subspaces, lines", descriptors="subspaces", selection=Selection(), lines=True),
    FormSetting(name="words, epsilon 5", descriptors="words", epsilon=5.0),
    FormSetting(name="words, epsilon 4", descriptors="words", epsilon=4.0),
    FormSetting(name="words, epsilon 3", descriptors="words", epsilon=3.0),
    FormSetting(name="positions alone", descriptors="words", epsilon=0.0),
    FormSetting(name="words, epsilon 10, lines", descriptors="words", epsilon=10.0, lines=True),
)
"""Forms of the table in docs/choose.md."""
DEFAULT, FEW, FEWER = Selection(), Selection(features=500), Selection(features=250)
USUAL_WORDS = FormSetting(name="usual words", descriptors="words", epsilon=EPSILON, words_sent=FEATURES, bundled=True)
"""What leaves by default to be localized (`veil.usual_protection`)."""


def _of_photographs(name: str, *, selection: Selection = DEFAULT, lines: bool = False, m: int = PHOTOGRAPHS_M) -> FormSetting:
    return FormSetting(name=name, descriptors="subspaces", selection=selection, photographs=True, lines=lines, m=m)


DECOY_FORMS = (
    FormSetting(name="subspaces of 500 features", descriptors="subspaces", selection=FEW),
    FormSetting(name="subspaces of 250 features", descriptors="subspaces", selection=FEWER),
    _of_photographs("photographs"),
    _of_photographs("photographs, lines", lines=True),
    _of_photographs("photographs, 500 features", selection=FEW),
    _of_photographs("photographs, 250 features", selection=FEWER),
    _of_photographs("photographs, m = 2", m=2),
    _of_photographs("photographs, m = 4", m=4),
    _of_photographs("photographs, lines, m = 4", lines=True, m=4),
)
"""Forms with fewer features, and with decoys of whole photographs."""


@dataclass(frozen=True, kw_only=True)
class FormOptions:
    """Options of the study.

    `photographs` of each scene are attacked, evenly spread over those held out (None: all), with `others` uploads beside each
    in the second run, which 0 leaves out. `features` of each photograph are attacked, for `seconds` of processor time a
    photograph and run.
    `seed` draws them.
    """

    photographs: int | None = 2
    others: int = 4
    features: int = 200
    seconds: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features < 1 or (self.photographs is not None and self.photographs < 1) or self.others < 0:
            raise RangeError("photographs and features must be at least 1, and others at least 0")
        if not self.seconds > 0:
            raise RangeError(f"seconds must be positive, got {self.seconds!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class FormPools:
    """Codebooks of a study: `codebook` with the PCA, the client's secret pool `decoys`, and the attacker's `database`.

    Pool and database are disjoint. `learned` and `pairs` are networks of the attacker, None for attacks without. `photographs`
    give decoys as wholes; of those of the place itself none does.
    """

    codebook: Codebook
    decoys: Codebook
    database: Codebook
    learned: LearnedModel | None = None
    pairs: PairNetwork | None = None
    photographs: DecoyPhotographs = field(default_factory=lambda: DecoyPhotographs(photographs=()))

    @staticmethod
    def split(codebook: Codebook, pool: Codebook) -> FormPools:
        """Pools from one of real descriptors: the client's decoys are its first half, the attacker has the second."""
        half = len(pool) // 2
        return FormPools(
            codebook=codebook,
            decoys=replace(pool, stored=pool.stored[:half], slices=max(1, pool.slices // 2)),
            database=replace(pool, stored=pool.stored[half:], slices=1),
        )


def released_as(
    setting: FormSetting,
    features: Features,
    pools: FormPools,
    *,
    dictionary: Codebook | None,
    randomness: Randomness,
    gravity: Float64[np.ndarray, "3"] | None,
) -> Message:
    """Release of `features` in the form `setting`, before it is sent; some lines follow `gravity`, where lines hide positions.

    `dictionary` is that of words; subspaces need none. Raises what `privatize` or `privatize_words` raises.
    """
    lines = HideInLines(gravity=gravity) if setting.lines else None
    if setting.epsilon is not None:
        assert dictionary is not None
        law = SubsetMechanism(dictionary_size=len(dictionary), epsilon=setting.epsilon, m=2)
        return privatize_words(
            features, mechanism=law, dictionary=dictionary, randomness=randomness, lines=lines, features_sent=setting.words_sent
        ).upload
    profile, selection = replace(Profile.hardened(quantized=features.is_quantized), m=setting.m), setting.selection
    most = (usual_selection(profile) if isinstance(selection, ChosenFeatures) else selection).features or len(features)
    return privatize(
        features,
        profile=profile,
        compression=pools.codebook.compression,
        decoys=in_runs(pools.decoys, most * profile.decoy_count),
        randomness=randomness,
        lines=lines,
        selection=selection,
    ).upload


@dataclass(eq=False, kw_only=True)
class FormScene:
    """A map with held-out photographs, and releases of a place's photographs in each form, each made once.

    `words` is the dictionary, None for one of the mapped photographs; releases are drawn from `secret`. Of photographs in
    `chosen` these features leave in subspaces, whatever the form selects.
    """

    fold: Fold
    pools: FormPools
    options: FormOptions
    metric: bool = False
    words: Codebook | None = None
    chosen: Mapping[str, ChosenFeatures] = field(default_factory=dict)
    secret: Secure = field(default_factory=fresh)

    def __post_init__(self) -> None:
        down = mean_down(dict(self.fold.place.down), self.fold.scene.images)
        self.scene: Scene = replace(self.fold.scene, measured_down=down)
        self._released: dict[tuple[str, str], tuple[Message, int]] = {}
        self._indexes: dict[str, InvertedIndex] = {}
        self._neighbor_words: dict[str, NeighborModel] = {}
        self._spent: dict[str, set[bytes]] = {}  # digests of photographs that gave decoys, by form

    @property
    def victims(self) -> list[str]:
        """The held-out photographs that are attacked, evenly spread."""
        names = list(self.fold.held_out)
        count = min(self.options.photographs or len(names), len(names))
        return [names[place] for place in np.unique(np.linspace(0, len(names) - 1, count).round().astype(int))]

    def dictionary(self, setting: FormSetting) -> Codebook:
        """The dictionary of a form's words: the bundled one, the given one, or one of the mapped photographs."""
        if setting.bundled:
            return usual_words(next(iter(self.fold.place.features.values())).space.descriptor).book
        return self._own_dictionary if self.words is None else self.words

    @cached_property
    def _own_dictionary(self) -> Codebook:
        photographs = mapped(self.fold)
        size = min(DICTIONARY_SIZE, most_words(photographs))
        return dictionary_of(photographs, size, source=f"the map of {self.fold.place.name}")

    def neighbor_words(self, dictionary: Codebook) -> NeighborModel:
        """Words that lie side by side in the mapped photographs, which are public."""
        if dictionary.digest not in self._neighbor_words:
            self._neighbor_words[dictionary.digest] = self._learned_neighbors(dictionary)
        return self._neighbor_words[dictionary.digest]

    def _learned_neighbors(self, dictionary: Codebook) -> NeighborModel:
        photographs = [
            PhotographInWords(
                keypoints=features.keypoints.astype(np.float64), words=dictionary.nearest(publish(features).vectors)
            )
            for features in mapped(self.fold)
        ]
        return learn_neighbors(photographs, dictionary, seed=self.options.seed)

    @cached_property
    def where(self) -> Map:
        """The public map as a server holds it, with its indexes once they are made."""
        return Map(scene=self.scene)

    def index(self, dictionary: Codebook) -> InvertedIndex:
        """The map's index for a dictionary."""
        if dictionary.digest not in self._indexes:
            self._indexes[dictionary.digest] = index_map(self.scene, dictionary)
        return self._indexes[dictionary.digest]

    def public(self, setting: FormSetting) -> Codebook:
        """The codebook that a form names: the dictionary of words, or the one with the PCA of subspaces."""
        return self.dictionary(setting) if setting.descriptors == "words" else self.pools.codebook

    def neighbors(self, name: str) -> list[str]:
        """The photographs nearest to `name`, by the reference, of which the attacker has uploads."""
        centers = {other: pose.center for other, pose in self.fold.place.cam_from_world.items()}
        others = sorted(set(centers) - {name}, key=lambda other: float(np.linalg.norm(centers[other] - centers[name])))
        return others[: self.options.others]

    def scene_neighbors(self, name: str) -> list[str]:
        """The two mapped photographs nearest to `name`, by the reference."""
        centers = {other: pose.center for other, pose in self.fold.place.cam_from_world.items() if other in self.scene.images}
        center = self.fold.place.cam_from_world[name].center
        return sorted(centers, key=lambda other: float(np.linalg.norm(centers[other] - center)))[:2]

    def released(self, setting: FormSetting, name: str) -> tuple[Message, int]:
        """The release of a photograph as the server decodes it, and its size in bytes."""
        key = (setting.name, name)
        if key not in self._released:
            made = self._made(setting, self.fold.place.features[name], name)
            dtype: Literal["float16", "float32"] = "float16" if setting.descriptors == "subspaces" else "float32"
            data = encode(made, dtype=dtype)
            self._released[key] = decode(data), len(data)
        return self._released[key]

    def size(self, setting: FormSetting, name: str) -> tuple[int, int]:
        """Bytes and features that a photograph sends; of raw features, descriptors and positions."""
        if setting.descriptors == "raw":
            features = self.fold.place.features[name]
            return len(features) * (features.descriptors.itemsize * features.space.dim + 8), len(features)
        message, size = self.released(setting, name)
        return size, len(message)

    def _made(self, setting: FormSetting, features: Features, name: str) -> Message:
        down = self.fold.place.down.get(name) if setting.gravity else None
        dictionary = self.dictionary(setting) if setting.descriptors == "words" else None
        form = replace(setting, selection=self.chosen.get(name, setting.selection))
        if form.photographs:
            return self._of_photographs(form, features, down)
        made = released_as(form, features, self.pools, dictionary=dictionary, randomness=self.secret, gravity=down)
        if setting.epsilon is None or down is None or not isinstance(made, Upload):
            return made
        return replace(made, gravity=tilted(down, GRAVITY_SIGMA_DEG, name))

    def _of_photographs(self, setting: FormSetting, features: Features, down: Float64[np.ndarray, "3"] | None) -> Message:
        """The release with decoys of photographs that no other release of the form used, none of them of this place."""
        used = self._spent.setdefault(setting.name, {item.image_digest for item in self.fold.place.features.values()})
        descriptors = HideInSubspaces(
            profile=replace(Profile.hardened(quantized=features.is_quantized), m=setting.m),
            codebook=self.pools.codebook,
            decoys=self.pools.photographs.without(used),
            selection=setting.selection,
        )
        lines = HideInLines(gravity=down) if setting.lines else None
        made = make(Protection(descriptors=descriptors, lines=lines), features, self.secret)
        used.update(made.decoy_photographs)
        return made.upload

    def localized(self, setting: FormSetting, name: str) -> tuple[float, float] | None:
        """Position error in parts of 0.25 m (or 1 % of the extent) and rotation error in degrees; None if refused."""
        answer = self._answer(setting, name)
        if isinstance(answer, NoPose):
            return None
        reference = self.fold.place.cam_from_world[name]
        position, rotation = pose_error(answer.cam_from_world, reference, self.fold.reference_from_map)
        centers = np.array([pose.center for pose in self.fold.place.cam_from_world.values()])
        limit = 0.25 if self.metric else 0.01 * float(np.linalg.norm(np.ptp(centers, axis=0)))
        return position / limit, rotation

    def _answer(self, setting: FormSetting, name: str) -> Localization | NoPose:
        if setting.descriptors == "raw":
            features = self.fold.place.features[name]
            return localize(features.camera, features.keypoints, publish(features), self.scene)
        message, _ = self.released(setting, name)
        seen = message.lines if isinstance(message, LineUpload) else message.keypoints
        if isinstance(message.form, Subsets):
            gravity = message.gravity if isinstance(message, Upload) else None
            if setting.epsilon == 0 and isinstance(message, Upload):
                near = self.scene_neighbors(name)
                return localize_positions(message.camera, message.keypoints, self.scene, gravity=gravity, near=near)
            return localize_words(
                message.camera, seen, message.form, self.scene, self.index(self.dictionary(setting)), gravity=gravity
            )
        return localize(message.camera, seen, message.form, self.scene, codebook=self.pools.codebook)

    @cached_property
    def _in_subspaces(self) -> Knowledge:
        """The attacker's knowledge without uploads; its copies share the database in each space."""
        return Knowledge(
            codebook=self.pools.codebook,
            decoys=None,
            database=self.pools.database,
            pairs=self.pools.pairs,
            learned=self.pools.learned,
            scene=self.scene,
        )

    def _in_words(self, dictionary: Codebook) -> Knowledge:
        """The same where words are sent, with the words that are neighbors."""
        return replace(self._in_subspaces, codebook=dictionary, neighbors=self.neighbor_words(dictionary))

    def target(self, setting: FormSetting, name: str, others: Sequence[str] = ()) -> Target:
        """One photograph's release as an attacker has it, with the uploads of the photographs `others` beside it."""
        message, _ = self.released(setting, name)
        seen = {other: ReleasedImage.of(self.released(setting, other)[0]) for other in others}
        effort = Effort(features=self.options.features, seed=self.options.seed)
        known = self._in_words(self.dictionary(setting)) if setting.descriptors == "words" else self._in_subspaces
        return Target(
            image=ReleasedImage.of(message),
            rows=effort.rows(len(message), name),
            knowledge=replace(known, others=seen),
            effort=effort,
            time=TimeBudget(self.options.seconds, turns=1, shares=TIME_SHARES),
        )

    def attacked(self, setting: FormSetting, name: str, target: Target, attacks: Sequence[Attack]) -> Examined:
        """Every attack on the release of a photograph, which `target` shows the attacker."""
        message, _ = self.released(setting, name)
        truth = find_truth(message, {name: self.fold.place.features[name]}, self.public(setting))
        return Examined(name=name, message=message, tried=tuple(try_attacks(target, attacks)), truth=truth)

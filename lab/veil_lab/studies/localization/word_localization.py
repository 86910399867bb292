"""Localization of held-out queries in every form: the protocol of Pittaluga and Zhuang 2023, Tables 2 and 3.

Scenes have reference poses. The maps are public, as in the paper: COLMAP's, of the photographs that are not held out. What a
query sends goes through the wire. Photographs of other places are queries, too, and no answer but a refusal is right.

Words are also matched like descriptors, the baseline of Table 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.forms import Lines, Points, Subsets
from veil.geometry.similarity import pose_error
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import NEAREST, Candidates, InvertedIndex, index_map
from veil.matching.neighbors import match
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize
from veil.places.poses.by_words import localize_candidates, localize_words
from veil.places.poses.options import WordOptions
from veil.progress import Progress
from veil.randomness import fresh
from veil.scene import Scene, mean_down
from veil.space import require_same
from veil.wire import LineUpload, decode, encode
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN, Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped
from veil_lab.studies.localization.word_localization_settings import Setting, Trial


def neighbor_candidates(form: Subsets, scene: Scene, dictionary: Codebook) -> Candidates:
    """Candidates of a query in words: mutual nearest neighbors of its words' vectors and each map image's descriptors.

    Each of a feature's m words has a vector in the dictionary. Features that send the same word are equally near; the first of
    them is the neighbor. `log_odds` is minus the distance: only its order is used. Raises InputError unless the map holds
    descriptors and the dictionary is the query's, SpaceError if these descriptors are of another space.
    """
    if form.dictionary != dictionary.digest:
        raise InputError(f"the query's words are of dictionary {form.dictionary[:12]}, this one is {dictionary.digest[:12]}")
    require_same(scene.space, dictionary.raw_space)
    used, first_sent = np.unique(form.ids.ravel(), return_index=True)
    words = Points(vectors=dictionary.vectors[used], space=scene.space)
    keys, distances = [], []
    for image in scene.images.values():
        if not isinstance(image.form, Points):
            raise InputError("nearest neighbors of words need a map of descriptors; match words with words instead")
        matches = match(words, image.form)
        keypoint = first_sent[matches.indices[:, 0]] // form.m
        keys.append(keypoint * len(scene.points) + image.point_rows[matches.indices[:, 1]])
        distances.append(matches.distances)
    key, distance = np.concatenate(keys), np.concatenate(distances)
    best = np.argsort(distance, kind="stable")
    _, first = np.unique(key[best], return_index=True)
    rows = best[np.sort(first)]
    keypoint_rows, point_rows = np.divmod(key[rows], len(scene.points))
    return Candidates(
        keypoint_rows=keypoint_rows.astype(np.int64), point_rows=point_rows.astype(np.int64), log_odds=-distance[rows]
    )


DELTA = 1e-6
POSITION_BYTES, LINE_BYTES = 8, 12  # two float32 of a position, three of a line


@dataclass(eq=False)
class FoldLocalizer:
    """The map of one fold, which localizes queries in every setting; each dictionary and index is made once.

    `codebook` and `decoys` are those of subspaces. `named` holds dictionaries of other photographs by the name that
    settings give them. `seed` is that of dictionaries from the map and of the search by words.
    """

    fold: Fold
    codebook: Codebook
    decoys: Codebook
    named: Mapping[str, Codebook] = field(default_factory=dict)
    seed: int = 0
    _made: dict[tuple[str, int | None], tuple[Codebook, InvertedIndex]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        down = mean_down(dict(self.fold.place.down), self.fold.scene.images)
        self.scene: Scene = replace(self.fold.scene, measured_down=down)

    def dictionary_and_index(self, setting: Setting) -> tuple[Codebook, InvertedIndex]:
        """The dictionary of a setting in words, and the map's index for it."""
        key = (setting.dictionary or "", setting.words)
        if key not in self._made:
            if setting.dictionary == "reference":
                assert setting.words is not None
                book = self._from_map(setting.words)
            else:
                book = self.named[setting.dictionary or ""]
            self._made[key] = (book, index_map(self.scene, book, nearest=NEAREST))
        return self._made[key]

    def _from_map(self, words: int) -> Codebook:
        """A dictionary of all descriptors of the mapped photographs; the held-out ones have no part in it."""
        return dictionary_of(mapped(self.fold), words, source=f"the map of {self.fold.place.name}", seed=self.seed)

    def run_query(self, setting: Setting, name: str, features: Features, *, true: bool) -> Trial:
        """The trial of one photograph in one setting: its release is sent, localized and compared with its reference pose.

        `true` says that the photograph shows the fold's place.
        """
        down = self.fold.place.down.get(name, LEVEL_DOWN) if true else LEVEL_DOWN
        if setting.uses_words:
            result, size, epsilon = self._by_words(setting, features, down)
        else:
            (result, size), epsilon = self._by_distance(setting, features, down), None
        position = rotation = None
        if true and isinstance(result, Localization):
            reference = self.fold.place.cam_from_world[name]
            position, rotation = pose_error(result.cam_from_world, reference, self.fold.reference_from_map)
        return Trial(
            setting=setting,
            scene=self.fold.place.name,
            query=name,
            true=true,
            accepted=isinstance(result, Localization),
            inliers=result.inliers,
            position=position,
            rotation_deg=rotation,
            upload_bytes=size,
            epsilon_image=epsilon,
        )

    def _by_words(self, setting: Setting, features: Features, down: np.ndarray) -> tuple[Localization | NoPose, int, float]:
        """Result of a query in words, the bytes that were sent, and the epsilon of the whole image at `DELTA`."""
        book, vocabulary = self.dictionary_and_index(setting)
        assert setting.epsilon is not None and setting.m is not None
        mechanism = SubsetMechanism(dictionary_size=len(book), epsilon=setting.epsilon, m=setting.m)
        lines = HideInLines(gravity=down) if setting.hides_positions else None
        message = encode(
            privatize_words(features, mechanism=mechanism, dictionary=book, randomness=fresh(), lines=lines).upload,
            dtype="float32",
        )
        upload = decode(message)
        assert isinstance(upload.form, Subsets)
        positions = upload.lines if isinstance(upload, LineUpload) else upload.keypoints
        most = setting.iterations or WordOptions().max_iterations
        least = min(WordOptions().min_iterations, most)
        options = WordOptions(min_iterations=least, max_iterations=most, seed=self.seed, threads=1)
        if setting.matching == "mutual-nn":
            candidates = neighbor_candidates(upload.form, self.scene, book)
            names = list(self.scene.images)
            result = localize_candidates(upload.camera, positions, candidates, self.scene, names, options=options)
        else:
            result = localize_words(upload.camera, positions, upload.form, self.scene, vocabulary, options=options)
        return result, len(message), composed_epsilon({mechanism: len(upload)}, DELTA)

    def _by_distance(self, setting: Setting, features: Features, down: np.ndarray) -> tuple[Localization | NoPose, int]:
        """Result of a query in subspaces or raw descriptors, with positions or lines, and the bytes that it sends."""
        if setting.form == "subspaces":
            profile = setting.profile or Profile.hardened(
                quantized=features.is_quantized, compress=self.codebook.pca is not None
            )
            decoys = self.decoys if profile.decoys == "descriptors" else self.codebook
            release = privatize(
                features, profile=profile, compression=self.codebook.compression, decoys=decoys, randomness=fresh()
            )
            message = encode(release.upload, dtype=profile.dtype)
            upload = decode(message)
            assert not isinstance(upload, LineUpload)
            result = localize(upload.camera, upload.keypoints, upload.form, self.scene, codebook=self.codebook)
            return result, len(message)
        form: Points = publish(features)
        positions: np.ndarray | Lines = features.keypoints
        size = POSITION_BYTES
        if setting.hides_positions:
            positions, size = lift_to_lines(features, gravity=down, randomness=fresh(), options=LineOptions()), LINE_BYTES
        size += features.descriptors.itemsize * form.space.dim
        return localize(features.camera, positions, form, self.scene), len(features) * size


def run_settings(
    localizer: FoldLocalizer,
    settings: Sequence[Setting],
    strangers: Mapping[str, Features],
    *,
    progress: Progress | None = None,
) -> Iterator[Trial]:
    """Trials of every held-out photograph of the fold, and of the photographs `strangers` of other places, in every setting."""
    queries = [(name, localizer.fold.place.features[name], True) for name in localizer.fold.held_out]
    queries += [(name, features, False) for name, features in strangers.items()]
    done, total = 0, len(settings) * len(queries)
    for setting in settings:
        for name, features, true in queries:
            yield localizer.run_query(setting, name, features, true=true)
            done += 1
            if progress is not None:
                progress(done, total)

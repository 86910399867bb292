"""Study of near repeats: what several frames of a static video, or several handheld shots, give away of the first of them.

One device releases all of them in each form, under one secret and with one pool, as it would in use: repeats share decoys, and
hardly any descriptor exactly. The attacker has two or five of these uploads, and networks if the pools hold any. Of all attacks
the one that recovers most is reported, and the attacker may have aligned the pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.attacks.registry import chosen
from veil.attacks.target import Effort, Knowledge, ReleasedImage
from veil.audit.finding import ErrorUnit, Score
from veil.audit.ground_truth import find_truth
from veil.audit.measured_forms import SHOWN
from veil.audit.run import examine, findings
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import spherical_kmeans
from veil.errors import InputError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.lines import normalized_keypoints
from veil.mechanisms.public import publish
from veil.mechanisms.repeats import DrawnFeatures, sketched, with_earlier_draws
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import Randomness, seeded
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Message
from veil_lab.studies.attacks.aligned_repeats import aligned_attacks
from veil_lab.studies.attacks.form_releases import DICTIONARY_SIZE, FORMS, WORDS_SENT, FormPools, FormSetting, released_as
from veil_lab.studies.attacks.pooled_shares import pooled_shares
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN
from veil_lab.training.altered import RepeatKind

UPLOADS = (2, 5)
NAMES = ("subspaces", "subspaces, lines", "words, epsilon 5", "positions alone")
SETTINGS = tuple(setting for setting in FORMS if setting.name in NAMES)
# Attacks that compare uploads, and those on one upload that name words and guess positions in any case. `aligned_attacks` join.
# `intersection` is left out: it takes most of the time, and recovers 2 % of the descriptors from five uploads (choose.md).
COMPARING = ("matched views", "repeat", "posterior", "line density", "repeat of lines")
# These join where the attacker has networks. Their search takes some forty seconds of a core for a release of 700 features.
LEARNED = ("modes", "context", "matched candidates")


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatSet:
    """Features of near repeats of one photograph, the first of which is attacked.

    `to_photograph` are the affine maps from their pixels to those of the photograph.
    """

    photograph: str
    kind: RepeatKind
    features: Sequence[Features]
    to_photograph: Sequence[Float64[np.ndarray, "2 3"]]

    @property
    def alignments(self) -> list[Float64[np.ndarray, "2 3"]]:
        """Maps from the pixels of all repeats but the first to those of the first."""
        first, *others = (np.vstack([part, [0.0, 0.0, 1.0]]) for part in self.to_photograph)
        return [np.linalg.solve(first, other)[:2] for other in others]


@dataclass(frozen=True, kw_only=True)
class RepeatRow:
    """Shares that the best attack on near repeats recovered of the first one, over all photographs.

    `unit` and its `shares` are those of `veil.audit.measured_forms`: of descriptors within 0.1, 0.2 and 0.4 of their length, of
    positions within 5 and 20 px, or of words that were named. `low` and `high` are ends of 95 % bootstrap intervals over
    photographs; `features` counts all that were attacked.
    """

    form: str
    kind: RepeatKind
    uploads: int
    attack: str
    unit: ErrorUnit
    photographs: int
    features: int
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "form": self.form,
            "kind": self.kind,
            "uploads": self.uploads,
            "attack": self.attack,
            "unit": self.unit,
            "photographs": self.photographs,
            "features": self.features,
            "shares": list(self.shares),
            "low": list(self.low),
            "high": list(self.high),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackedRepeat:
    """Number of attacked features by the unit of an attack, and its scores by number of uploads and name of the attack."""

    features: Mapping[ErrorUnit, int]
    scores: Mapping[int, Mapping[str, Score]]


def repeats_study(
    sets: Sequence[RepeatSet],
    pools: FormPools,
    settings: Sequence[FormSetting] = SETTINGS,
    *,
    most: int = WORDS_SENT,
    seed: int = 0,
    earlier: bool = False,
    progress: StepProgress = ignore_steps,
) -> list[RepeatRow]:
    """Rows of all forms, kinds, numbers of uploads and units, each of its best attack.

    Descriptors of at most `most` features of each photograph are attacked, words and positions of all. With `earlier` the
    device gives features that left before their earlier draws (`veil.mechanisms.repeats`), as queries of a client do. Raises
    InputError without any set, or for a set of less than five repeats.
    """
    if not sets or min(len(item.features) for item in sets) < max(UPLOADS):
        raise InputError(f"give one or more photographs, with {max(UPLOADS)} near repeats of each")
    kinds = list(dict.fromkeys(item.kind for item in sets))
    in_words = any(setting.descriptors == "words" for setting in settings)
    dictionary = _dictionary(pools.database, seed) if in_words else None
    count = StepCount(progress, len(settings) * len(sets))
    rows: list[RepeatRow] = []
    for setting in settings:
        for kind in kinds:
            attacked = []
            for item in (item for item in sets if item.kind == kind):
                count.begin(f"{setting.name}: {kind}s of {item.photograph}")
                attacked.append(_attacked(setting, item, pools, dictionary, Effort(features=most, seed=seed), earlier))
            for uploads in UPLOADS:
                rows += _best(setting.name, kind, uploads, attacked, seed)
    return rows


def _dictionary(database: Codebook, seed: int) -> Codebook:
    """A public dictionary of words: centroids of the attacker's descriptors, and so of none of the attacked photographs."""
    vectors = database.vectors[: 8 * DICTIONARY_SIZE]
    words = min(DICTIONARY_SIZE, len(vectors) // 2)
    provenance = Provenance(source="the attacker's descriptors", license="", image_count=0, descriptor_count=len(vectors))
    return Dictionary(
        descriptor=database.descriptor,
        normalization=database.normalization,
        stored=list(spherical_kmeans(vectors, words, iterations=8, seed=seed))[-1],
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=provenance,
    )


def _attacked(
    setting: FormSetting, item: RepeatSet, pools: FormPools, dictionary: Codebook | None, effort: Effort, earlier: bool
) -> AttackedRepeat:
    """Scores of all attacks on one set of near repeats."""
    device = seeded(f"repeats {effort.seed}")  # one secret for all photographs, as one device has
    public = dictionary if setting.descriptors == "words" else pools.codebook
    messages = [
        released_as(setting, features, pools, dictionary=dictionary, randomness=device, gravity=LEVEL_DOWN)
        for features in item.features
    ]
    if earlier and public is not None:
        messages = _with_earlier_draws(messages, item.features, public, device)
    first, *others = map(_as_sent, messages)
    truth = find_truth(first, {item.photograph: item.features[0]}, public)
    attacks = chosen(COMPARING if pools.learned is None else (*COMPARING, *LEARNED))
    scores: dict[int, dict[str, Score]] = {}
    for uploads in UPLOADS:
        seen = {f"repeat {place}": ReleasedImage.of(other) for place, other in enumerate(others[: uploads - 1])}
        examined = examine(
            {item.photograph: first},
            {item.photograph: truth},
            Knowledge(codebook=public, decoys=None, database=pools.database, others=seen, learned=pools.learned),
            effort=effort,
            attacks=(*attacks, *aligned_attacks(item.alignments[: uploads - 1])),
        )
        scores[uploads] = {item.attack: item.score for item in findings(examined) if item.score is not None}
    sent = len(first)
    return AttackedRepeat(features={"descriptor": min(sent, effort.features), "word": sent, "px": sent}, scores=scores)


def _with_earlier_draws(
    messages: Sequence[Message], images: Sequence[Features], public: Codebook, device: Randomness
) -> list[Message]:
    """The messages as one device sends them one after another that gives features their earlier draws."""
    answered: list[Message] = []
    earlier: list[DrawnFeatures] = []
    for message, features in zip(messages, images, strict=True):
        sent = features.take(find_truth(message, {"": features}, public).rows)
        sketches, places = sketched(publish(sent).vectors, device), normalized_keypoints(sent)
        again = with_earlier_draws(message, sketches, earlier, places=places)
        earlier.append(DrawnFeatures.of(again.message, sketches[again.rows], again.is_new, places=places[again.rows]))
        answered.append(again.message)
    return answered


def _as_sent(message: Message) -> Message:
    """A release of a study as a server gets it: subspaces in half precision. It is not encoded, as it is not releasable."""
    form = message.form
    return replace(message, form=as_sent(form, "float16")) if isinstance(form, Subspaces) else message


def _best(form: str, kind: RepeatKind, uploads: int, tried: Sequence[AttackedRepeat], seed: int) -> list[RepeatRow]:
    """Rows of the best attack of each unit; a photograph on which an attack cannot be run counts as nothing recovered."""
    best: dict[ErrorUnit, RepeatRow] = {}
    for attack, unit in {name: score.unit for item in tried for name, score in item.scores[uploads].items()}.items():
        known = [item.scores[uploads][attack].shares if attack in item.scores[uploads] else {} for item in tried]
        counts = np.array([item.features[unit] for item in tried])
        hits = [[shares[name].count if shares else 0 for name in SHOWN[unit]] for shares in known]
        pooled = pooled_shares(np.array(hits), counts, seed=seed)
        if unit not in best or pooled.shares > best[unit].shares:
            best[unit] = RepeatRow(
                form=form,
                kind=kind,
                uploads=uploads,
                attack=attack,
                unit=unit,
                photographs=len(tried),
                features=int(counts.sum()),
                shares=pooled.shares,
                low=pooled.low,
                high=pooled.high,
            )
    return list(best.values())

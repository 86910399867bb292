"""Constants of attacks from the attacker's own photographs of some places, tested on places that were left out.

They are the weights of `matched candidates` and the sharpness of `same photograph`. The attacker releases its photographs as a
device does, searches the candidates of some features, and knows which are right.

Theory: release.md#matched-candidates, learned_attacks.md#same-photograph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.attack import run_attack
from veil.attacks.claims import Estimates
from veil.attacks.distribution.context import context_estimates, mean_spacing
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.modes import Modes, density_modes
from veil.attacks.distribution.same_photograph import DecoyLaw, PhotographModel, photograph_beliefs
from veil.attacks.matches.matched_candidates import (
    CandidateDistances,
    ViewOfFeatures,
    candidate_estimates,
    view_distances,
    with_suggestions,
)
from veil.attacks.matches.view_weights import ViewWeights, ViewWeightsJson
from veil.attacks.registry import named
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.audit.ground_truth import find_truth
from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import in_runs
from veil.engine import Engine
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import Selection
from veil.progress import Progress, ignore_progress
from veil.randomness import Randomness, seeded
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Upload
from veil_lab.training.photograph_fitting import FittedSharpness, JudgedModes, fit_sharpness, log_likelihoods
from veil_lab.training.view_fit import RATIO, FittedWeights, RatedCandidates, as_vector, as_weights, fit_weights

# Largest error of a right candidate, and the errors within which descriptors count as recovered, parts of their length.
RIGHT_WITHIN, RECOVERED = 0.35, (0.1, 0.2, 0.4)


@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """Numbers of a tuning.

    `photographs` of each place are attacked, evenly taken, each beside `others`: those next to it in the order of names.
    `features` of each that lie together are attacked. Raises RangeError unless all are positive.
    """

    photographs: int = 6
    others: int = 4
    features: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.photographs, self.others, self.features) < 1:
            raise RangeError("photographs, others and features must be at least 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningAttacker:
    """Networks and descriptors of the attacker, who releases with `decoys` that are not in its `database`.

    `codebook` is the one that releases name.
    """

    model: LearnedModel
    codebook: Codebook
    decoys: Codebook
    database: Codebook


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningPlace:
    """Raw features of photographs of one place by name; of each attacked photograph, `others` names those uploaded beside."""

    name: str
    photographs: Mapping[str, Features]
    others: Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedFeatures:
    """Modes of some features of one release, further candidates, their distances to other views, and the truth.

    `decoys` is what the attacker takes for the law of decoys. `keypoints` (pixels) are None behind lines; `spacing` is the mean
    one of the release.
    """

    place: str
    form: Subspaces
    modes: Modes
    decoys: DecoyLaw
    candidates: Modes
    asked: Sequence[tuple[ViewOfFeatures, CandidateDistances]]
    keypoints: Float64[np.ndarray, "features 2"] | None
    spacing: float
    truth: Float64[np.ndarray, "features dim"]

    @property
    def rated(self) -> RatedCandidates:
        """The numbers that weights are fitted to."""
        return RatedCandidates(
            log_ratios=self.candidates.log_ratios,
            distance=np.stack([near.distance for _, near in self.asked]),
            is_verified=np.stack([seen.partners.is_verified for seen, _ in self.asked]),
            is_right=self._errors(self.candidates) < RIGHT_WITHIN,
        )

    @property
    def judged(self) -> JudgedModes:
        """The modes that the sharpness of `same photograph` is fitted to: one at most of each feature is right, the nearest."""
        errors = self._errors(self.modes)
        is_right = (errors < RIGHT_WITHIN) & (errors == errors.min(axis=1, keepdims=True))
        return JudgedModes(modes=self.modes, is_right=is_right, decoys=self.decoys)

    def recovered(self, model: LearnedModel) -> tuple[float, ...]:
        """Shares of the features that `matched candidates` with `model` recovers within 0.1, 0.2 and 0.4."""
        return self._shares(
            candidate_estimates(self.candidates, self.form, self.asked, model, self.keypoints, spacing=self.spacing)
        )

    def recovered_alone(self, model: LearnedModel) -> tuple[float, ...]:
        """Shares of the features that `same photograph` with `model` recovers within 0.1, 0.2 and 0.4."""
        beliefs = photograph_beliefs(self.modes, law_of(model), self.decoys)
        return self._shares(context_estimates(self.form, self.modes, beliefs, model.context))

    def _errors(self, modes: Modes) -> Float64[np.ndarray, "features modes"]:
        """Distances of modes to the descriptors, infinite where there is no mode."""
        errors = np.linalg.norm(modes.points - self.truth[:, None], axis=2)
        return np.where(np.isnan(errors), np.inf, errors)

    def _shares(self, estimates: Estimates) -> tuple[float, ...]:
        errors = np.linalg.norm(estimates.points - self.truth, axis=1)
        return tuple(float((errors < within).mean()) for within in RECOVERED)


class TunedSharpnessJson(TypedDict):
    """What `same photograph` does on one place, before and with the sharpness of the other places."""

    sharpness: float
    cross_entropy_before: float | None
    cross_entropy: float | None
    recovered_before: list[float]
    recovered: list[float]


class TunedPlaceJson(TypedDict):
    """Shares recovered within 0.1, 0.2 and 0.4 on one place, before and with the constants of the other places."""

    place: str
    photographs: int
    positions_before: list[float]
    positions: list[float]
    lines_before: list[float]
    lines: list[float]
    same_photograph: TunedSharpnessJson


class FittedSharpnessJson(TypedDict):
    """Sharpness of `same photograph`, and its standard error."""

    sharpness: float
    standard_error: float | None


class AttackTuningJson(TypedDict):
    """Constants that were fitted, their standard errors, and the places with others' constants.

    `standard_errors` are in the order of `constants`, those of `weights`.
    """

    weights: ViewWeightsJson
    constants: list[str]
    standard_errors: list[float | None]
    features: int
    verified_features: int
    same_photograph: FittedSharpnessJson
    places: list[TunedPlaceJson]


@dataclass(frozen=True, kw_only=True)
class TunedSharpness:
    """What `same photograph` does on one place, before and with the `sharpness` that the other places give.

    `cross_entropy` is the mean of the negative logarithm (nats) of the belief in the right modes, NaN where no feature has one.
    `recovered` are mean shares within 0.1, 0.2 and 0.4.
    """

    sharpness: float
    cross_entropy_before: float
    cross_entropy: float
    recovered_before: tuple[float, ...]
    recovered: tuple[float, ...]

    def as_json(self) -> TunedSharpnessJson:
        """The stable record of lab/reference/json.md."""
        return {
            "sharpness": self.sharpness,
            "cross_entropy_before": _or_none(self.cross_entropy_before),
            "cross_entropy": _or_none(self.cross_entropy),
            "recovered_before": list(self.recovered_before),
            "recovered": list(self.recovered),
        }


@dataclass(frozen=True, kw_only=True)
class TunedPlace:
    """Mean shares recovered of one place's releases with `positions` and behind `lines`, by weights of the other places.

    Those `before` are by the weights that the tuning began with. Shares are within 0.1, 0.2 and 0.4. `alone` is for the same
    releases behind lines without any other upload.
    """

    place: str
    photographs: int
    positions_before: tuple[float, ...]
    positions: tuple[float, ...]
    lines_before: tuple[float, ...]
    lines: tuple[float, ...]
    alone: TunedSharpness

    def as_json(self) -> TunedPlaceJson:
        """The stable record of lab/reference/json.md."""
        return {
            "place": self.place,
            "photographs": self.photographs,
            "positions_before": list(self.positions_before),
            "positions": list(self.positions),
            "lines_before": list(self.lines_before),
            "lines": list(self.lines),
            "same_photograph": self.alone.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class AttackTuning:
    """Constants fitted to all places, and how they do on each place where the others alone fit them.

    `fitted` are those of `matched candidates`, `sharpness` is that of `same photograph`.
    """

    fitted: FittedWeights
    sharpness: FittedSharpness
    places: tuple[TunedPlace, ...]

    def as_json(self) -> AttackTuningJson:
        """The stable record of lab/reference/json.md."""
        ratios = [f"{of}.{name}" for of in ("nearest", "verified") for name in RATIO]
        return {
            "weights": self.fitted.weights.as_json(),
            "constants": ["sharpness", *ratios],
            "standard_errors": [_or_none(item) for item in self.fitted.errors],
            "features": self.fitted.features,
            "verified_features": self.fitted.verified_features,
            "same_photograph": {
                "sharpness": self.sharpness.sharpness,
                "standard_error": _or_none(self.sharpness.error),
            },
            "places": [place.as_json() for place in self.places],
        }


def attacked_photographs(names: Sequence[str], options: TuningOptions) -> dict[str, list[str]]:
    """The photographs to attack, with the names of those next to each in the order of `names`."""
    chosen = np.unique(np.linspace(0, len(names) - 1, min(options.photographs, len(names))).round().astype(np.int64))
    near = {int(own): sorted(range(len(names)), key=lambda other: (abs(other - own), other)) for own in chosen}
    return {names[own]: [names[other] for other in rows[1 : options.others + 1]] for own, rows in near.items()}


def asked_features(
    places: Sequence[TuningPlace],
    attacker: TuningAttacker,
    engine: Engine,
    *,
    options: TuningOptions | None = None,
    progress: Progress = ignore_progress,
) -> list[AskedFeatures]:
    """Features of releases of each place with positions and behind lines, in turn, with their candidates.

    Raises InputError for fewer than two places, a place with fewer than two photographs, and networks without a law of
    photographs.
    """
    options = options or TuningOptions()
    law_of(attacker.model)
    if len(places) < 2 or min(len(place.photographs) for place in places) < 2:
        raise InputError("give two places or more, each a folder with two photographs or more")
    items = [(number, name) for number, place in enumerate(places) for name in place.others]
    uploads = []
    for place in places:
        secret = seeded(f"tuning {options.seed} {place.name}")
        uploads.append({name: _released(features, attacker, secret) for name, features in place.photographs.items()})
    with engine.scatter((tuple(places), uploads, attacker, options)) as shared:
        asked = dict(engine.map(_asked, items, shared=(shared,), progress=progress))
    return [item for position in range(len(items)) for item in asked[position]]


def tuned(asked: Sequence[AskedFeatures], model: LearnedModel) -> AttackTuning:
    """Constants that all of `asked` support most, and the shares that constants of the other places recover of each place.

    Places where positions verify no partner at all do not show the same, and say nothing of weights of views. Raises InputError
    where photographs of the other places do not match, and where no feature has a right mode.
    """
    behind = [item for item in asked if _on_lines(item)]
    likelihoods = log_likelihoods([item.judged for item in behind], law_of(model))
    showing = {item.place for item in asked if any(seen.partners.is_verified.any() for seen, _ in item.asked)}

    def fitted(places: Set[str]) -> tuple[FittedWeights, FittedSharpness]:
        weights = _fitted([item for item in asked if item.place in places & showing], model.views)
        return weights, fit_sharpness(likelihoods[[item.place in places for item in behind]])

    places = dict.fromkeys(item.place for item in asked)
    rows = []
    for place in places:
        own = [item for item in asked if item.place == place]
        rows.append(_tuned_place(place, own, model, with_constants(model, *fitted(places.keys() - {place}))))
    weights, sharpness = fitted(places.keys())
    return AttackTuning(fitted=weights, sharpness=sharpness, places=tuple(rows))


def _tuned_place(place: str, own: Sequence[AskedFeatures], before: LearnedModel, after: LearnedModel) -> TunedPlace:
    """Results of the attacks on the releases `own` of a place, with two sets of constants."""
    positions, behind = ([item for item in own if _on_lines(item) == lines] for lines in (False, True))
    right = sum(item.judged.features for item in behind)

    def mean(shares: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(map(float, np.mean(shares, axis=0)))

    def cross_entropy(model: LearnedModel) -> float:
        return -sum(item.judged.log_likelihood(law_of(model)) for item in behind) / right if right else np.nan

    return TunedPlace(
        place=place,
        photographs=len(behind),
        positions_before=mean([item.recovered(before) for item in positions]),
        positions=mean([item.recovered(after) for item in positions]),
        lines_before=mean([item.recovered(before) for item in behind]),
        lines=mean([item.recovered(after) for item in behind]),
        alone=TunedSharpness(
            sharpness=law_of(after).sharpness,
            cross_entropy_before=cross_entropy(before),
            cross_entropy=cross_entropy(after),
            recovered_before=mean([item.recovered_alone(before) for item in behind]),
            recovered=mean([item.recovered_alone(after) for item in behind]),
        ),
    )


def law_of(model: LearnedModel) -> PhotographModel:
    """The law of photographs that networks came with. Raises InputError if they came without one."""
    if model.photograph is None:
        raise InputError("the networks came without a law of photographs; train them again, or take the bundled ones")
    return model.photograph


def with_constants(model: LearnedModel, weights: FittedWeights, sharpness: FittedSharpness) -> LearnedModel:
    """The networks of `model` with fitted constants."""
    return replace(model, views=weights.weights, photograph=replace(law_of(model), sharpness=sharpness.sharpness))


def _fitted(asked: Sequence[AskedFeatures], start: ViewWeights) -> FittedWeights:
    """The fit to some features, each constant rounded to three digits, as a file keeps it."""
    lines, positions = ([item.rated for item in asked if _on_lines(item) == behind] for behind in (True, False))
    fitted = fit_weights(lines, positions, start=start)
    rounded = np.array([float(f"{value:.3g}") for value in as_vector(fitted.weights)])
    return replace(fitted, weights=as_weights(rounded))


def _or_none(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if np.isnan(value) else value


def _on_lines(item: AskedFeatures) -> bool:
    return item.keypoints is None


def _released(features: Features, attacker: TuningAttacker, secret: Randomness) -> Upload:
    """A release by default options, as a server gets it: in half precision."""
    profile, selection = Profile.hardened(quantized=features.is_quantized), Selection()
    made = privatize(
        features,
        profile=profile,
        compression=attacker.codebook.compression,
        decoys=in_runs(attacker.decoys, (selection.features or len(features)) * profile.decoy_count),
        randomness=secret,
        selection=selection,
    ).upload
    assert isinstance(made, Upload) and isinstance(made.form, Subspaces)
    return replace(made, form=as_sent(made.form, "float16"))


def _together(keypoints: Float64[np.ndarray, "features 2"], count: int, seed: int, name: str) -> Int64[np.ndarray, "chosen"]:
    """Rows of the `count` features around one that is drawn: neighbors stay neighbors."""
    center = keypoints[np.random.default_rng([seed, *name.encode()]).integers(len(keypoints))]
    return np.sort(np.argsort(np.linalg.norm(keypoints - center, axis=1), kind="stable")[:count])


def _asked(
    item: tuple[int, str],
    shared: tuple[Sequence[TuningPlace], Sequence[Mapping[str, Upload]], TuningAttacker, TuningOptions],
) -> list[AskedFeatures]:
    """Some features of one release with its positions, and the same behind lines: a task of an engine."""
    (number, name), (places, uploads, attacker, options) = item, shared
    place, released = places[number], uploads[number]
    message = released[name]
    assert isinstance(message.form, Subspaces)
    keypoints = message.keypoints.astype(np.float64)
    rows = _together(keypoints, options.features, options.seed, name)
    knowledge = Knowledge(
        codebook=attacker.codebook,
        decoys=None,
        database=attacker.database,
        others={other: ReleasedImage.of(released[other]) for other in place.others[name]},
        learned=attacker.model,
    )
    form, seen = message.form.take(rows), ReleasedImage.of(message)
    truth = find_truth(message, {name: place.photographs[name]}, attacker.codebook).descriptors[rows]
    database = knowledge.database_in(form.space)
    modes = density_modes(form, attacker.model.density, database)
    decoys = DecoyLaw.of(database, law_of(attacker.model))
    made = []
    for image in (seen, replace(seen, keypoints=None)):
        target = Target(image=image, rows=rows, knowledge=knowledge)
        run_attack(named("matched views")[0], target)
        views = [ViewOfFeatures.of(form, view, partners.take(rows)) for view, partners in target.cache["matched views"]]
        candidates = with_suggestions(modes, form, views, attacker.model.density)
        made.append(
            AskedFeatures(
                place=place.name,
                form=form,
                modes=modes,
                decoys=decoys,
                candidates=candidates,
                asked=[(view, view_distances(candidates, form, view)) for view in views],
                keypoints=None if image.keypoints is None else keypoints[rows],
                spacing=mean_spacing(keypoints),
                truth=truth,
            )
        )
    return made

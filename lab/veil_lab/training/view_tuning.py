"""Weights of `matched candidates` from the attacker's own photographs of some places, tested on places that were left out.

The attacker releases its photographs as a device does, searches the candidates of some features, and knows which are right.

Theory: release.md#matched-candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.attack import run_attack
from veil.attacks.distribution.context import mean_spacing
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.modes import Modes, density_modes
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
    """Candidates of some features of one release, their distances to other views, and the truth.

    `keypoints` (pixels) are None behind lines; `spacing` is the mean one of the release.
    """

    place: str
    form: Subspaces
    candidates: Modes
    asked: Sequence[tuple[ViewOfFeatures, CandidateDistances]]
    keypoints: Float64[np.ndarray, "features 2"] | None
    spacing: float
    truth: Float64[np.ndarray, "features dim"]

    @property
    def rated(self) -> RatedCandidates:
        """The numbers that weights are fitted to."""
        errors = np.linalg.norm(self.candidates.points - self.truth[:, None], axis=2)
        return RatedCandidates(
            log_ratios=self.candidates.log_ratios,
            distance=np.stack([near.distance for _, near in self.asked]),
            is_verified=np.stack([seen.partners.is_verified for seen, _ in self.asked]),
            is_right=errors < RIGHT_WITHIN,
        )

    def recovered(self, model: LearnedModel) -> tuple[float, ...]:
        """Shares of the features that the attack with `model` recovers within 0.1, 0.2 and 0.4."""
        estimates = candidate_estimates(self.candidates, self.form, self.asked, model, self.keypoints, spacing=self.spacing)
        errors = np.linalg.norm(estimates.points - self.truth, axis=1)
        return tuple(float((errors < within).mean()) for within in RECOVERED)


class TunedPlaceJson(TypedDict):
    """Shares recovered within 0.1, 0.2 and 0.4 on one place, before and with the weights of the other places."""

    place: str
    photographs: int
    positions_before: list[float]
    positions: list[float]
    lines_before: list[float]
    lines: list[float]


class ViewTuningJson(TypedDict):
    """Weights that were fitted, their standard errors in the order of `constants`, and the places with others' weights."""

    weights: ViewWeightsJson
    constants: list[str]
    standard_errors: list[float | None]
    features: int
    verified_features: int
    places: list[TunedPlaceJson]


@dataclass(frozen=True, kw_only=True)
class TunedPlace:
    """Mean shares recovered of one place's releases with `positions` and behind `lines`, by weights of the other places.

    Those `before` are by the weights that the tuning began with. Shares are within 0.1, 0.2 and 0.4.
    """

    place: str
    photographs: int
    positions_before: tuple[float, ...]
    positions: tuple[float, ...]
    lines_before: tuple[float, ...]
    lines: tuple[float, ...]

    def as_json(self) -> TunedPlaceJson:
        """The stable record of lab/reference/json.md."""
        return {
            "place": self.place,
            "photographs": self.photographs,
            "positions_before": list(self.positions_before),
            "positions": list(self.positions),
            "lines_before": list(self.lines_before),
            "lines": list(self.lines),
        }


@dataclass(frozen=True, kw_only=True)
class ViewTuning:
    """Weights fitted to all places, and how they do on each place where the others alone fit them."""

    fitted: FittedWeights
    places: tuple[TunedPlace, ...]

    def as_json(self) -> ViewTuningJson:
        """The stable record of lab/reference/json.md."""
        ratios = [f"{of}.{name}" for of in ("nearest", "verified") for name in RATIO]
        return {
            "weights": self.fitted.weights.as_json(),
            "constants": ["sharpness", *ratios],
            "standard_errors": [None if np.isnan(item) else item for item in self.fitted.errors],
            "features": self.fitted.features,
            "verified_features": self.fitted.verified_features,
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

    Raises InputError for fewer than two places, and a place with fewer than two
    photographs.
    """
    options = options or TuningOptions()
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


def tuned(asked: Sequence[AskedFeatures], model: LearnedModel) -> ViewTuning:
    """Weights that all of `asked` support most, and the shares that weights of the other places recover of each place.

    Raises InputError where photographs of the places do not match.
    """
    rows = []
    for place in dict.fromkeys(item.place for item in asked):
        own, rest = ([item for item in asked if (item.place == place) == is_own] for is_own in (True, False))
        others = replace(model, views=_fitted(rest, model.views).weights)
        shares = [
            tuple(
                float(share)
                for share in np.mean([item.recovered(networks) for item in own if _on_lines(item) == lines], axis=0)
            )
            for lines in (False, True)
            for networks in (model, others)
        ]
        rows.append(
            TunedPlace(
                place=place,
                photographs=sum(not _on_lines(item) for item in own),
                positions_before=shares[0],
                positions=shares[1],
                lines_before=shares[2],
                lines=shares[3],
            )
        )
    return ViewTuning(fitted=_fitted(asked, model.views), places=tuple(rows))


def _fitted(asked: Sequence[AskedFeatures], start: ViewWeights) -> FittedWeights:
    """The fit to some features, each constant rounded to three digits, as a file keeps it."""
    lines, positions = ([item.rated for item in asked if _on_lines(item) == behind] for behind in (True, False))
    fitted = fit_weights(lines, positions, start=start)
    rounded = np.array([float(f"{value:.3g}") for value in as_vector(fitted.weights)])
    return replace(fitted, weights=as_weights(rounded))


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
    modes = density_modes(form, attacker.model.density, knowledge.database_in(form.space))
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
                candidates=candidates,
                asked=[(view, view_distances(candidates, form, view)) for view in views],
                keypoints=None if image.keypoints is None else keypoints[rows],
                spacing=mean_spacing(keypoints),
                truth=truth,
            )
        )
    return made

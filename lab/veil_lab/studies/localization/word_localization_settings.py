"""Settings, trials and rows of `veil evaluate localization` (Pittaluga and Zhuang 2023, Tables 2 and 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from veil.errors import InputError
from veil.mechanisms.profile import Profile

FormName = Literal["raw", "subspaces", "words", "lines", "words+lines"]
FORMS: tuple[FormName, ...] = get_args(FormName)
Matching = Literal["distance", "vocabulary", "mutual-nn"]
# Pittaluga and Zhuang 2023, Table 2: meters and degrees; without a metric scale, shares of the cameras' extent and degrees.
METRIC: dict[str, tuple[float, float]] = {"0.25m, 2deg": (0.25, 2.0), "0.5m, 5deg": (0.5, 5.0), "5m, 10deg": (5.0, 10.0)}
RELATIVE: dict[str, tuple[float, float]] = {"1%, 2deg": (0.01, 2.0), "2%, 5deg": (0.02, 5.0), "20%, 10deg": (0.2, 10.0)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The form in which a query is sent, and how it is matched with the map.

    Forms in words have a `dictionary` of `words` (K) words, made from the map's own photographs ("reference") or a named
    codebook, the parameters `epsilon` and `m` of the mechanism, and at most `iterations` samples of the search. Subspaces are
    lifted by `profile`; None: the hardened default.
    """

    form: FormName
    matching: Matching = "distance"
    words: int | None = None
    epsilon: float | None = None
    m: int | None = None
    dictionary: str | None = None
    iterations: int | None = None
    profile: Profile | None = None

    @property
    def lifting(self) -> str | None:
        """The profile `hardened`, or the strategy of another one that was asked for; None if none was."""
        if self.profile is None:
            return None
        return "hardened" if self.profile.name == "hardened" else self.profile.strategy

    @property
    def uses_words(self) -> bool:
        """Whether descriptors are sent as words."""
        return self.form.startswith("words")

    @property
    def hides_positions(self) -> bool:
        """Whether lines are sent."""
        return self.form.endswith("lines")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Values of the parameters in the two tables of the paper: a default point (K, epsilon, m), and one varied at a time.

    `words` are values of K, `sizes` of m, `iterations` of the samples of a search, which are `most` elsewhere; `elsewhere`
    names dictionaries of other photographs.
    """

    words: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)
    epsilons: tuple[float, ...] = (4.0, 6.0, 8.0, 10.0, 12.0)
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    iterations: tuple[int, ...] = (1_000, 10_000)
    default: tuple[int, float, int] = (4096, 10.0, 2)
    most: int = 100_000
    elsewhere: tuple[str, ...] = ()

    def settings(self) -> list[Setting]:
        """All settings of the tables, in their order and each one once."""
        k, epsilon, m = self.default

        def words(**changed: object) -> Setting:
            """The default setting of words with some values changed."""
            base = Setting(
                form="words",
                matching="vocabulary",
                words=k,
                epsilon=epsilon,
                m=m,
                dictionary="reference",
                iterations=self.most,
            )
            return replace(base, **changed)  # type: ignore[arg-type]

        rows = [Setting(form="raw"), Setting(form="subspaces"), Setting(form="lines")]
        rows += [words(words=count, epsilon=math.inf, m=1) for count in self.words]
        rows += [words(words=count) for count in self.words]
        rows += [words(epsilon=value) for value in self.epsilons]
        rows += [words(m=size) for size in self.sizes]
        rows += [words(matching="mutual-nn", words=count) for count in self.words]
        rows += [words(dictionary=name, words=None) for name in self.elsewhere]
        rows += [words(iterations=count) for count in self.iterations]
        rows += [words(form="words+lines", epsilon=value) for value in self.epsilons]
        return list(dict.fromkeys(rows))


def settings_of_forms(*, words: int, epsilon: float, m: int, dictionary: str, iterations: int) -> list[Setting]:
    """One setting of each form, to compare descriptors in: words are those of one named codebook that has `words` of them."""
    spoken = Setting(
        form="words",
        matching="vocabulary",
        words=words,
        epsilon=epsilon,
        m=m,
        dictionary=dictionary,
        iterations=iterations,
    )
    return [
        Setting(form="raw"),
        Setting(form="subspaces"),
        spoken,
        Setting(form="lines"),
        replace(spoken, form="words+lines"),
    ]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Result of one query in one setting.

    `true` says that the query shows the scene. Errors are in units of the reference and in degrees, None without a pose or for
    a false query. `epsilon_image` is the epsilon of all features together, None where no words are sent.
    """

    setting: Setting
    scene: str
    query: str
    true: bool
    accepted: bool
    inliers: int
    position: float | None
    rotation_deg: float | None
    upload_bytes: int
    epsilon_image: float | None


@dataclass(frozen=True, kw_only=True)
class LocalizationRow:
    """Results of one setting on one scene, over all of its held-out queries.

    `features` is the median number of features of the scene's photographs, which are of one `descriptor`.
    `localized` is the share of true queries within each threshold, by the threshold's name. Medians of errors are over the
    accepted true queries, those of inliers, bytes and epsilon over all true queries.
    """

    scene: str
    descriptor: str
    features: float
    setting: Setting
    queries: int
    localized: Mapping[str, float]
    accepted: float
    median_position: float | None
    median_rotation_deg: float | None
    median_inliers: float
    false_queries: int
    false_accepts: int
    upload_bytes: float
    epsilon_image: float | None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        setting = self.setting
        return {
            "scene": self.scene,
            "descriptor": self.descriptor,
            "features": self.features,
            "form": setting.form,
            "matching": setting.matching,
            "words": setting.words,
            "epsilon": setting.epsilon,
            "m": setting.m,
            "lifting": setting.lifting,
            "dictionary": setting.dictionary,
            "iterations": setting.iterations,
            "queries": self.queries,
            "localized": dict(self.localized),
            "accepted": self.accepted,
            "median_position": self.median_position,
            "median_rotation_deg": self.median_rotation_deg,
            "median_inliers": self.median_inliers,
            "false_queries": self.false_queries,
            "false_accepts": self.false_accepts,
            "upload_bytes": self.upload_bytes,
            "epsilon_image": self.epsilon_image,
        }


def localization_row(
    setting: Setting,
    trials: Sequence[Trial],
    *,
    descriptor: str,
    features: float,
    thresholds: Mapping[str, tuple[float, float]],
    extent: float,
) -> LocalizationRow:
    """The row that sums up the trials of one setting on one scene.

    `features` is the median number of features of its photographs, which are of one `descriptor`.
    `thresholds` are pairs of a position and an angle in degrees, by name; `extent` scales their positions (1 where they are
    metric). Raises InputError without a true query.
    """
    true = [trial for trial in trials if trial.true]
    false = [trial for trial in trials if not trial.true]
    if not true:
        raise InputError("a row needs at least one held-out query")
    errors = [(trial.position, trial.rotation_deg) for trial in true]
    answered = [(far, turned) for far, turned in errors if far is not None and turned is not None]
    localized = {
        name: sum(position <= far * extent and rotation <= turned for position, rotation in answered) / len(true)
        for name, (far, turned) in thresholds.items()
    }
    spent = [trial.epsilon_image for trial in true if trial.epsilon_image is not None]
    return LocalizationRow(
        scene=true[0].scene,
        descriptor=descriptor,
        features=features,
        setting=setting,
        queries=len(true),
        localized=localized,
        accepted=sum(trial.accepted for trial in true) / len(true),
        median_position=float(np.median([position for position, _ in answered])) if answered else None,
        median_rotation_deg=float(np.median([rotation for _, rotation in answered])) if answered else None,
        median_inliers=float(np.median([trial.inliers for trial in true])),
        false_queries=len(false),
        false_accepts=sum(trial.accepted for trial in false),
        upload_bytes=float(np.median([trial.upload_bytes for trial in true])),
        epsilon_image=float(np.median(spent)) if spent else None,
    )

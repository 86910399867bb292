"""Study of forms: what every attack recovers from each form of a photograph, and how well the form localizes.

Photographs of a scene are held out of a public map, which is made of the others. Each held-out photograph is released in each
form, sent through the wire, localized in the map, and attacked by every attack of the list: once with nothing uploaded beside
it, and once with the uploads of its nearest neighbors in the same form. The attacker knows codebook, dictionary and PCA, has
descriptors of its own and the public map, but neither the client's secret nor its pool of decoys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding
from veil.audit.laws import broken_laws, lost_with_more
from veil.audit.measured_forms import MeasuredAttack, MeasuredForm, measured_attacks
from veil.audit.run import Examined, findings
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.progress import StepCount, StepProgress, ignore_steps
from veil_lab.studies.attacks.form_releases import DELTA, FORMS, FormOptions, FormPools, FormScene, FormSetting
from veil_lab.studies.attacks.pooled_shares import pooled_shares
from veil_lab.studies.localization.false_acceptance import Fold


@dataclass(frozen=True, kw_only=True, eq=False)
class FormRow:
    """Results of one form over all scenes.

    - `localized`: photographs accepted within 0.25 m (or 1 % of the extent) and 2 degrees; `wrong`: accepted but off by more
      than 5 degrees or 5 m (20 %); `queries`: all.
    - `upload_bytes`: mean size of a message; `features`: mean number sent; `epsilon_image`: largest, None without epsilon.
    - `alone`, `together`: findings of all attacks with one upload, and with `FormOptions.others` beside it; empty for raw
      descriptors, which need no attack.
    - `attacks`: what these findings come to, with intervals over photographs.
    - `broken`: laws that the attacks break, which is a fault of the study (`veil.audit.laws`).
    """

    setting: FormSetting
    queries: int
    localized: int
    wrong: int
    upload_bytes: float
    features: float
    epsilon_image: float | None
    alone: Sequence[Finding]
    together: Sequence[Finding]
    attacks: Sequence[MeasuredAttack] = ()
    broken: Sequence[str] = ()

    @property
    def measured(self) -> MeasuredForm:
        """Facts of the row for tables and sentences."""
        return MeasuredForm(
            form=self.setting.name,
            queries=self.queries,
            localized=self.localized,
            wrong=self.wrong,
            features=self.features,
            upload_bytes=self.upload_bytes,
            epsilon_image=self.epsilon_image,
            attacks=tuple(self.attacks),
        )

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "form": self.setting.name,
            "queries": self.queries,
            "localized": self.localized,
            "wrong": self.wrong,
            "upload_bytes": self.upload_bytes,
            "features": self.features,
            "epsilon_image": self.epsilon_image,
            "one_upload": [item.as_json() for item in self.alone],
            "several_uploads": [item.as_json() for item in self.together],
            "broken_laws": list(self.broken),
        }


def form_study(
    folds: Sequence[Fold],
    pools: FormPools,
    settings: Sequence[FormSetting] = FORMS,
    *,
    options: FormOptions | None = None,
    attacks: Sequence[Attack] = ATTACKS,
    metric: Mapping[str, bool] | None = None,
    progress: StepProgress = ignore_steps,
) -> Iterator[FormRow]:
    """Rows of all forms, as each is done.

    `folds` are maps with held-out photographs; `metric` says by the name of a place whether its unit is the meter. `progress`
    is called with a sentence for each step: the localization of a scene's photographs in a form, and each attack on one.
    """
    options = options or FormOptions()
    scenes = [
        FormScene(fold=fold, pools=pools, options=options, metric=(metric or {}).get(fold.place.name, False)) for fold in folds
    ]
    count = StepCount(progress, sum(_steps(setting, scene) for setting in settings for scene in scenes))
    for setting in settings:
        yield _row(setting, scenes, options, attacks, count)


def _steps(setting: FormSetting, scene: FormScene) -> int:
    """Number of steps of one form in one scene: all photographs are localized, and some attacked, alone and with others."""
    return 1 if setting.descriptors == "raw" else 1 + (2 if scene.options.others else 1) * len(scene.victims)


def _row(
    setting: FormSetting,
    scenes: Sequence[FormScene],
    options: FormOptions,
    attacks: Sequence[Attack],
    count: StepCount,
) -> FormRow:
    errors: list[tuple[float, float] | None] = []
    sizes: list[tuple[int, int]] = []
    examined: tuple[list[Examined], list[Examined]] = ([], [])
    epsilon: float | None = None
    for scene in scenes:
        place = scene.fold.place.name
        count.begin(f"{setting.name}: {place}: localizing")
        for name in scene.fold.held_out:
            errors.append(scene.localized(setting, name))
            sizes.append(scene.size(setting, name))
        if setting.epsilon is not None:
            law = SubsetMechanism(dictionary_size=len(scene.dictionary(setting)), epsilon=setting.epsilon, m=2)
            sent = max(len(scene.released(setting, name)[0]) for name in scene.fold.held_out)
            epsilon = max(epsilon or 0.0, composed_epsilon({law: sent}, DELTA))
        if setting.descriptors == "raw":
            continue
        for name in scene.victims:
            runs = ((), scene.neighbors(name)) if options.others else ((),)
            for others, into in zip(runs, examined, strict=False):
                count.begin(f"{setting.name}: {place}: attacking {name}{' with others' if others else ''}")
                into.append(scene.attacked(setting, name, scene.target(setting, name, others), attacks))
    right = [error for error in errors if error is not None]
    return FormRow(
        setting=setting,
        queries=len(errors),
        localized=sum(position <= 1 and rotation <= 2 for position, rotation in right),
        wrong=sum(position > 20 or rotation > 5 for position, rotation in right),
        upload_bytes=float(np.mean([size for size, _ in sizes])),
        features=float(np.mean([count for _, count in sizes])),
        epsilon_image=epsilon,
        alone=findings(examined[0]) if examined[0] else (),
        together=findings(examined[1]) if examined[1] else (),
        attacks=[
            *_with_intervals(examined[0], 1, options.seed),
            *_with_intervals(examined[1], 1 + options.others, options.seed),
        ],
        broken=list(
            dict.fromkeys(
                [*broken_laws(examined[0]), *broken_laws(examined[1]), *(lost_with_more(*examined) if examined[1] else ())]
            )
        ),
    )


def _with_intervals(examined: Sequence[Examined], uploads: int, seed: int) -> Iterator[MeasuredAttack]:
    """Recovered shares of all photographs that an attack ran on, with intervals over them."""
    one_by_one = [attack for item in examined for attack in measured_attacks(findings([item]), uploads)]
    for pooled in measured_attacks(findings(examined) if examined else (), uploads):
        parts = [item for item in one_by_one if (item.attack, item.unit) == (pooled.attack, pooled.unit)]
        hits = np.array([[round(share * item.total) for share in item.shares] for item in parts])
        known = pooled_shares(hits, np.array([item.total for item in parts]), seed=seed)
        yield replace(pooled, photographs=len(parts), low=_rounded(known.low), high=_rounded(known.high))


def _rounded(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(share, 4) for share in shares)

"""The held-out photographs of `veil evaluate tiles`, sent to a server in other forms: raw, subspaces, lines, words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from veil.geometry.similarity import pose_error
from veil.matching.inverted_index import index_map
from veil.mechanisms.profile import Profile
from veil.places.poses.answer import Localization
from veil.trials.form_answers import FormSetup, Variant, answered, in_words
from veil_lab.studies.localization.against_raw import AgainstRaw, against_raw
from veil_lab.studies.localization.false_acceptance import Fold
from veil_lab.studies.localization.tile_localization import TileTrial

FormName = Literal["raw", "subspaces", "lines", "words"]
FORMS: tuple[FormName, ...] = get_args(FormName)


@dataclass(frozen=True, kw_only=True)
class FormTrial:
    """One held-out photograph, sent in one form to a server with the whole public map.

    Errors are in units of the reference and in degrees; None without a pose.
    """

    scene: str
    query: str
    form: FormName
    accepted: bool
    position_error: float | None
    rotation_error_deg: float | None
    upload_bytes: int
    device_seconds: float
    server_seconds: float


@dataclass(frozen=True, kw_only=True)
class FormRow:
    """A form in one scene, or in all of them (`scene` "all"): its answers beside the raw map's, and medians of its cost."""

    scene: str
    form: FormName
    beside: AgainstRaw
    upload_bytes: float
    device_seconds: float
    server_seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "form": self.form,
            **self.beside.as_json(),
            "upload_bytes": self.upload_bytes,
            "device_seconds": self.device_seconds,
            "server_seconds": self.server_seconds,
        }


def form_variant(form: FormName, words: int) -> Variant:
    """How a query of this form is sent: veil's default subspaces, the same with lines, or two words a feature of `words`."""
    default = Profile.hardened(quantized=True)
    return {
        "raw": Variant(profile=None, distance="point"),
        "subspaces": Variant(profile=default, distance="p2s"),
        "lines": Variant(profile=default, distance="p2s", lines=True),
        "words": in_words(words),
    }[form]


def form_trials(fold: Fold, forms: Sequence[FormName], setup: FormSetup) -> Iterator[FormTrial]:
    """The held-out photographs of a fold, sent in each of some forms to a server with its map.

    Lines follow the place's gravity. The setup's codebook is the dictionary of words.
    """
    vocabulary = index_map(fold.scene, setup.codebook) if "words" in forms else None
    for form in forms:
        variant = form_variant(form, len(setup.codebook))
        for name in fold.held_out:
            gravity = fold.place.down.get(name)
            answer = answered(setup, fold.place.features[name], variant, fold.scene, gravity=gravity, vocabulary=vocabulary)
            position = rotation = None
            if isinstance(answer.found, Localization):
                reference = fold.place.cam_from_world[name]
                position, rotation = pose_error(answer.found.cam_from_world, reference, fold.reference_from_map)
            yield FormTrial(
                scene=fold.place.name,
                query=name,
                form=form,
                accepted=isinstance(answer.found, Localization),
                position_error=None if position is None or not math.isfinite(position) else position,
                rotation_error_deg=rotation,
                upload_bytes=answer.upload_bytes,
                device_seconds=answer.device_s,
                server_seconds=answer.server_s,
            )


def form_rows(trials: Sequence[FormTrial], raw: Sequence[TileTrial]) -> list[FormRow]:
    """A row for each form and scene, and one for all scenes together where there are several.

    `raw` are the same photographs on the whole raw map, as `raw_trials` gives them.
    """
    scenes = list(dict.fromkeys(trial.scene for trial in trials))
    groups = [[name] for name in scenes] + ([scenes] if len(scenes) > 1 else [])
    forms = list(dict.fromkeys(trial.form for trial in trials))
    return [_form_row(trials, raw, form, names) for names in groups for form in forms]


def _form_row(trials: Sequence[FormTrial], raw: Sequence[TileTrial], form: FormName, scenes: Sequence[str]) -> FormRow:
    own = [item for item in trials if item.form == form and item.scene in scenes]
    by_raw = {(item.scene, item.query): item for item in raw if item.setting is None and item.scene in scenes}
    return FormRow(
        scene=scenes[0] if len(scenes) == 1 else "all",
        form=form,
        beside=against_raw({(item.scene, item.query): item for item in own}, by_raw, scenes),
        upload_bytes=float(np.median([item.upload_bytes for item in own])),
        device_seconds=float(np.median([item.device_seconds for item in own])),
        server_seconds=float(np.median([item.server_seconds for item in own])),
    )

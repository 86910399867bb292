"""Attacks that choose among planted modes of subspaces behind lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.attacks.attack import Attempt, run_attack
from veil.attacks.distribution.modes import Modes
from veil.attacks.registry import named
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from worlds import generator, subspaces


def attacked_behind_lines(name: str, **changed: object) -> Attempt:
    """The attack `name` on forty subspaces behind lines, whose modes are planted; `changed` is other knowledge."""
    model, random = bundled_learned_model(), generator("attacked")
    points = 0.1 * random.normal(size=(40, 5, model.space.dim))
    form = subspaces(random, points[:, 0], 4, model.space)
    knowledge = Knowledge(codebook=bundled_codebook(), decoys=None, database=bundled_decoys(), learned=model)
    keypoints = changed.pop("keypoints", None)
    target = Target(
        image=ReleasedImage(form=form, keypoints=keypoints),  # type: ignore[arg-type]
        rows=np.arange(40),
        knowledge=replace(knowledge, **changed),  # type: ignore[arg-type]
    )
    target.cache["modes"] = target.rows, Modes(points=points, log_ratios=np.zeros((40, 5)))
    (attack,) = named(name)
    return run_attack(attack, target)

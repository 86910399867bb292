"""The loop of every map: a model is proposed, adjusted and compared; images that contradict it are left out, and named.

Maps of positions, maps that grow and maps from lines say what each of these steps is (`MapInWork`); the order of the steps
stands here alone (docs/theory/mapping.md#the-loop).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

Model = TypeVar("Model")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Ended(Generic[Answer]):
    """The end of the proposals, with the answer that they lead to."""

    answer: Answer


@dataclass(frozen=True)
class Stuck:
    """A proposal that was stopped at the image of this name, and the reason."""

    image: str
    reason: str


@runtime_checkable
class MapInWork(Protocol[Model, Answer]):
    """A map in the making: its images, those that were left out so far, and the steps that `mapped` repeats."""

    def proposed(self, attempt: int) -> Model | Stuck | Ended[Answer]:
        """The next model of the images that are not left out, adjusted; `attempt` counts from 0."""

    def contradicting(self, model: Model) -> Mapping[str, str]:
        """Reasons why images must leave the model, by name; empty if it agrees with the evidence that it was made from."""

    def leave_out(self, wrong: Mapping[str, str], model: Model | None) -> None:
        """Leave images out, for these reasons, that contradict the model; it is None where the mapper was stopped at them."""

    def accepted(self, model: Model) -> Answer:
        """The answer for a model that nothing contradicts."""


def mapped(work: MapInWork[Model, Answer]) -> Answer:
    """The answer for a map in the making: each proposal is made without the images that stopped or contradicted the last."""
    for attempt in itertools.count():
        model = work.proposed(attempt)
        if isinstance(model, Ended):
            return model.answer
        if isinstance(model, Stuck):
            work.leave_out({model.image: model.reason}, None)
        elif wrong := work.contradicting(model):
            work.leave_out(wrong, model)
        else:
            return work.accepted(model)
    raise AssertionError("proposals end with an answer")

"""The loop of maps proposes without what was left out, and asks for an answer only where nothing contradicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veil.places.maps.loop import Ended, MapInWork, Stuck, mapped

Model = frozenset[str]


@dataclass
class Planted:
    """Images that contradict a model as long as another one is in it, and those that stop a proposal."""

    images: set[str]
    against: Mapping[str, str]
    stopping: Sequence[str] = ()
    attempts: int = 9
    left_out: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, object]] = field(default_factory=list)

    def proposed(self, attempt: int) -> Model | Stuck | Ended[str]:
        self.told.append(("proposed", attempt))
        if attempt == self.attempts:
            return Ended("given up")
        for name in self.stopping:
            if name in self.images:
                return Stuck(name, "it hangs")
        return frozenset(self.images)

    def contradicting(self, model: Model) -> Mapping[str, str]:
        self.told.append(("compared", model))
        return {a: f"{b} contradicts it" for a, b in self.against.items() if {a, b} <= model}

    def leave_out(self, wrong: Mapping[str, str], model: Model | None) -> None:
        self.told.append(("left out", model))
        self.left_out |= wrong
        self.images -= wrong.keys()

    def accepted(self, model: Model) -> str:
        return f"a map of {''.join(sorted(model))}"


def test_images_are_left_out_until_nothing_contradicts() -> None:
    """Enumeration: h stops the first proposal, b and d contradict the second, the third stands."""
    work = Planted({*"abcdh"}, {"b": "a", "d": "c", "c": "h"}, stopping="h")
    assert isinstance(work, MapInWork)
    assert mapped(work) == "a map of ac"
    assert work.left_out == {"h": "it hangs", "b": "a contradicts it", "d": "c contradicts it"}
    whole, rest = frozenset("abcd"), frozenset("ac")
    assert work.told == [
        ("proposed", 0),
        ("left out", None),
        ("proposed", 1),
        ("compared", whole),
        ("left out", whole),
        ("proposed", 2),
        ("compared", rest),
    ]


def test_proposals_end_with_their_answer() -> None:
    """Enumeration: each proposal is stopped at another image, and the third is the last one allowed."""
    work = Planted({*"abc"}, {}, stopping="abc", attempts=2)
    assert mapped(work) == "given up"
    assert [*work.left_out] == ["a", "b"] and ("proposed", 2) in work.told

"""Options of the training of context, which commands read without torch.

A file of its own: what trains by them imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from veil.errors import RangeError

Device = Literal["auto", "cpu", "cuda"]
# Fewest features of a photograph that teach anything.
LEAST_FEATURES = 12


@dataclass(frozen=True, kw_only=True)
class ContextTraining:
    """Options of the training of context.

    The attacker simulates `releases` releases of its photographs. The network takes `steps` gradient steps with releases of
    some `batch_features` features (None: 400, or 2,500 on a graphics processor); `rate` is the largest learning rate. `device`
    "auto" is a graphics processor where there is one. The defaults are made for two cores, and teach little; a graphics
    processor has time for thousands of releases and steps. Raises RangeError for values outside their range.
    """

    releases: int = 60
    steps: int = 600
    batch_features: int | None = None
    rate: float = 2e-3
    seed: int = 0
    device: Device = "auto"

    def __post_init__(self) -> None:
        for name in ("releases", "steps", "batch_features"):
            if (value := getattr(self, name)) is not None and not value >= 1:
                raise RangeError(f"{name} must be at least 1, got {value!r}")
        if not 0 < self.rate < 1 or self.seed < 0:
            raise RangeError(f"rate lies between 0 and 1, and seed is 0 or more; got {self.rate!r} and {self.seed!r}")
        if self.device not in get_args(Device):
            raise RangeError(f"device must be one of {', '.join(get_args(Device))}, got {self.device!r}")

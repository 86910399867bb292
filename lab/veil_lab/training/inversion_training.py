"""Training of the inversion network with torch: seeded, resumable, in half precision where that is faster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, UInt8

from veil.errors import InputError, RangeError
from veil.inversion.maps import Kind, SparseMap
from veil.inversion.network import Network, Tensor, batched, functional, torch
from veil.inversion.weights import Weights

# Type of a function from the number of a batch to its maps and pictures (batch, 256, 256, 3).
Source = Callable[[int], tuple[list[SparseMap], UInt8[np.ndarray, "batch 256 256 3"]]]
Precision = Literal["auto", "float32", "bfloat16"]
WARM_UP_STEPS, LAST_RATE = 100, 0.01
# Weight of 1 - SSIM beside L1 (Zhao et al. 2017 mix both); its window and scales are those of training, not of `quality`.
SSIM_WEIGHT, SSIM_WINDOW_PX, SSIM_STRIDE_PX, SSIM_SCALES = 1.0, 5, 2, 3


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of training.

    Training ends after `steps`, or after `minutes` of work if that is earlier; the learning rate falls to its end by then. A
    limit of minutes makes the result depend on the machine's speed; without one, equal options give equal weights on one
    machine, resumed or not. `precision` "auto" takes bfloat16 on a GPU and on processors that multiply it (AMX, AVX-512). A
    checkpoint is saved every `checkpoint_minutes`.

    Raises RangeError for values outside their range, InputError for "cuda" without a GPU.
    """

    steps: int
    seed: int
    minutes: float | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    precision: Precision = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        if not self.steps >= 1:
            raise RangeError(f"steps must be at least 1, got {self.steps!r}")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise RangeError(f"minutes must be finite and above 0, got {self.minutes!r}")
        if not (0 < self.learning_rate < 1 and 0 <= self.weight_decay < 1):
            raise RangeError(f"learning rate and weight decay lie in (0, 1), got {self.learning_rate!r}, {self.weight_decay!r}")
        if self.precision not in get_args(Precision):
            raise RangeError(f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("torch sees no GPU; train with device cpu")

    def done(self, step: int, seconds: float) -> float:
        """Share of the training that is over after `step` steps and `seconds` of work; 1 at its end."""
        by_time = 0.0 if self.minutes is None else seconds / (60 * self.minutes)
        return min(1.0, max(step / self.steps, by_time))

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate after `step` steps and `seconds` of work: a linear warm-up, then half a cosine."""
        fall = LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * self.done(step, seconds))) / 2
        return self.learning_rate * min(1.0, (step + 1) / WARM_UP_STEPS) * fall


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """A state of training after `step` steps and `seconds` of work.

    `arrays` are the network's tensors and the moments of the optimizer, in full precision.
    """

    kind: Kind
    step: int
    seconds: float
    arrays: Mapping[str, np.ndarray]

    def weights(self) -> dict[str, np.ndarray]:
        """The network's tensors by name, in half precision."""
        prefix = "network/"
        return {
            name[len(prefix) :]: array.astype(np.float16)
            for name, array in self.arrays.items()
            if name.startswith(prefix) and not name.endswith("num_batches_tracked")
        }


def train(
    kind: Kind,
    source: Source,
    options: TrainingOptions,
    *,
    state: State | None = None,
    start: Weights | None = None,
    progress: Callable[[int, float, float], None] | None = None,
    checkpoint: Callable[[State], None] | None = None,
) -> State:
    """Train a network of a kind from the start, or on from `state`, and return its last state.

    It starts from random weights, or from those of `start`. A `start` of another kind keeps its embedding of keypoints only
    between raw descriptors and words, as a descriptor is embedded like a single word (docs/theory/inversion.md, Eq. 5).

    `source` makes the batches, in a thread of their own while the network computes. `progress` is called after each step with
    its number, the share that is over and the loss, `checkpoint` with the state from time to time. Raises InputError if `state`
    is of another training, or `start` of another network.
    """
    trainer = _Trainer(kind, options, state, start)
    saved = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(source, trainer.step)
        while options.done(trainer.step, trainer.seconds) < 1:
            began = time.monotonic()
            maps, pictures = upcoming.result()
            upcoming = pool.submit(source, trainer.step + 1)
            loss = trainer.advance(maps, pictures)
            trainer.seconds += time.monotonic() - began
            if progress is not None:
                progress(trainer.step, options.done(trainer.step, trainer.seconds), loss)
            if checkpoint is not None and time.monotonic() - saved > 60 * options.checkpoint_minutes:
                checkpoint(trainer.state())
                saved = time.monotonic()
    return trainer.state()


def start_from(network: Network, start: Weights) -> None:
    """Give a new network the weights of another: all, or all but the embedding if one of the two reads subspaces.

    Raises InputError for weights of another architecture.
    """

    # A descriptor is embedded like a single word.
    alike = start.kind == network.kind or "subspaces" not in (start.kind, network.kind)

    def taken(name: str) -> bool:
        return not name.endswith("num_batches_tracked") and (alike or not name.startswith("embedding."))

    kept = {name: torch.from_numpy(np.array(array, dtype=np.float32)) for name, array in start.arrays.items() if taken(name)}
    refusal = "these are no weights of this network ({}); start from others, or from none"
    if kept.keys() != set(filter(taken, network.state_dict())):
        raise InputError(refusal.format("its layers are others"))
    try:
        network.load_state_dict(kept, strict=False)
    except RuntimeError as error:
        raise InputError(refusal.format(error)) from None


def reconstruction_loss(
    drawn: Float[Tensor, "images 3 height width"], wanted: Float[Tensor, "images 3 height width"]
) -> Float[Tensor, ""]:
    """The loss of pictures: L1 of pixels, and 1 - SSIM at three scales in place of VGG's perceptual loss.

    docs/theory/inversion.md, Eq. 7.
    """
    loss = (drawn - wanted).abs().mean()
    for scale in range(SSIM_SCALES):
        if scale:
            drawn, wanted = functional.avg_pool2d(drawn, 2), functional.avg_pool2d(wanted, 2)
        loss = loss + SSIM_WEIGHT / SSIM_SCALES * (1 - _similarity(drawn, wanted))
    return loss


def _similarity(x: Tensor, y: Tensor) -> Tensor:
    """SSIM of pictures with uniform windows that overlap, which cost little beside the network."""

    def windowed(values: Tensor) -> Tensor:
        return functional.avg_pool2d(values, SSIM_WINDOW_PX, SSIM_STRIDE_PX)

    mean_x, mean_y = windowed(x), windowed(y)
    spread_x, spread_y = windowed(x * x) - mean_x * mean_x, windowed(y * y) - mean_y * mean_y
    shared = windowed(x * y) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x * mean_x + mean_y * mean_y + c1)
    return (luminance * (2 * shared + c2) / (spread_x + spread_y + c2)).mean()


def uses_bfloat16(options: TrainingOptions) -> bool:
    """Whether `options.precision` means bfloat16 on this machine."""
    if options.precision != "auto":
        return options.precision == "bfloat16"
    if options.device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # Private: where they are gone, full precision is only slower.
    asked = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(bool(has and has()) for has in asked)


class _Trainer:
    """The network and the optimizer of a training, with the number of steps and the seconds of work."""

    def __init__(self, kind: Kind, options: TrainingOptions, state: State | None, start: Weights | None) -> None:
        if state is not None and state.kind != kind:
            raise InputError(f"the training to resume was of {state.kind}, not of {kind}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            network: Any = Network(kind)
        if state is None and start is not None:
            start_from(network, start)
        self._options = options
        self._network = network.to(options.device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
        )
        self.step, self.seconds = (0, 0.0) if state is None else (state.step, state.seconds)
        if state is not None:
            self._load(state.arrays)

    def advance(self, maps: list[SparseMap], pictures: np.ndarray) -> float:
        """Take one step on a batch and return its loss."""
        wanted = torch.from_numpy(pictures).to(self._options.device).permute(0, 3, 1, 2).float() / 255
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.rate(self.step, self.seconds)
        with self._casting():
            drawn = self._network(batched(maps, self._options.device))
        loss = reconstruction_loss(drawn.float(), wanted)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        return float(loss.detach())

    def _casting(self) -> AbstractContextManager:
        return torch.autocast(self._options.device, torch.bfloat16, enabled=uses_bfloat16(self._options))

    def state(self) -> State:
        """A copy of everything that the next step depends on."""
        arrays = {f"network/{name}": tensor for name, tensor in self._network.state_dict().items()}
        moments = self._optimizer.state_dict()["state"]
        arrays |= {f"optimizer/{row}/{name}": tensor for row, item in moments.items() for name, tensor in item.items()}
        copied = {name: tensor.detach().cpu().numpy().copy(order="C") for name, tensor in arrays.items()}
        return State(kind=self._network.kind, step=self.step, seconds=self.seconds, arrays=copied)

    def _load(self, arrays: Mapping[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        network = {name.partition("/")[2]: tensor for name, tensor in tensors.items() if name.startswith("network/")}
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, row, field = name.split("/")
                moments.setdefault(int(row), {})[field] = tensor
        try:
            self._network.load_state_dict(network)
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        except (RuntimeError, ValueError, KeyError) as error:
            raise InputError(f"this is not a state of the training of {self._network.kind}: {error}") from None

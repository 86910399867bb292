"""Training of the network of context in torch, through the exchange of beliefs itself.

Theory: learned_attacks.md#context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from veil.attacks.distribution.context import (
    ASKED_EVERY,
    DISTANCE_INPUTS,
    LARGEST_FIT,
    ROUNDS,
    ContextNetwork,
    NeighborLayers,
    Perceptron,
)
from veil.progress import Progress, ignore_progress
from veil.space import Space
from veil_lab.training.context_options import ContextTraining
from veil_lab.training.simulated_releases import ReleaseView, SimulatedRelease, Tensor, functional, nn, torch, torch_device

# Numbers in a code of a candidate and in what is compared of two, and in what it says of its photograph.
CODE, INNER, STYLE = 96, 64, 48
# A mode at a distance d from the descriptor is wanted with the weight exp(-d^2 / (2 NEAR^2)).
NEAR = 0.08
# Of a feature without a mode this close nothing is learned.
MISSED = 0.4
# The first round of exchange counts this much less than the last; weight of the remaining distance to the vertex.
FIRST_ROUND, VERTEX_WEIGHT = 0.3, 2.0
# The way to the vertex is short: what the layers give is scaled by this.
VERTEX_SCALE = 0.05
# Features of a batch where none are asked for.
BATCH_FEATURES = {"cpu": 400, "cuda": 2500}
WARM_UP_STEPS, LAST_RATE, WEIGHT_DECAY = 100, 0.02, 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextBatch:
    """Features of some releases, concatenated.

    - `inputs`: modes times sqrt(dim); `log_ratios`: those below the highest mode; `known`: which of the modes there are.
    - `photograph`: number of each feature's release; `neighbors`: rows of this batch, with what is read of `distances`.
    """

    inputs: Float32[Tensor, "features modes dim"]
    log_ratios: Float32[Tensor, "features modes"]
    known: Bool[Tensor, "features modes"]
    photograph: Int64[Tensor, "features"]
    neighbors: Int64[Tensor, "features neighbors"]
    distances: Float32[Tensor, "features neighbors inputs"]


class Answers(NamedTuple):
    """Descriptors behind the features of a batch, and orthonormal directions of their subspaces."""

    truth: Float32[Tensor, "features dim"]
    basis: Float32[Tensor, "features m dim"]


def train_context(
    releases: Sequence[SimulatedRelease],
    *,
    space: Space,
    source: str,
    options: ContextTraining | None = None,
    progress: Progress = ignore_progress,
) -> ContextNetwork:
    """A network of context, trained on releases that `simulated_releases` made.

    The same releases and options give the same network on one processor with one number of threads; a graphics processor rounds
    differently each time.
    """
    options = options or ContextTraining()
    device, random = torch_device(options.device), np.random.default_rng(options.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        module: Any = ContextModule(space.dim)
    module = module.to(device).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=options.rate, weight_decay=WEIGHT_DECAY)
    features = options.batch_features or BATCH_FEATURES[device]
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, options)
        batch, answers = joined(_drawn(releases, features, random))
        loss = context_loss(module, batch, answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        progress(step + 1, options.steps)
    return module.network(space, source)


def _rate(step: int, options: ContextTraining) -> float:
    """The learning rate of a step: a linear warm-up, then half a cosine."""
    warm_up = min(WARM_UP_STEPS, max(1, options.steps // 6))
    fall = LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * step / options.steps)) / 2
    return options.rate * min(1.0, (step + 1) / warm_up) * fall


def _drawn(
    releases: Sequence[SimulatedRelease], features: int, random: np.random.Generator
) -> list[tuple[SimulatedRelease, ReleaseView]]:
    """Releases, each with one of its views, until they have `features` features."""
    chosen: list[tuple[SimulatedRelease, ReleaseView]] = []
    while sum(len(view.members) for _, view in chosen) < features:
        release = releases[int(random.integers(len(releases)))]
        chosen.append((release, release.views[int(random.integers(len(release.views)))]))
    return chosen


def joined(parts: Sequence[tuple[SimulatedRelease, ReleaseView]]) -> tuple[ContextBatch, Answers]:
    """A batch of views of releases."""
    counts = [len(view.members) for _, view in parts]
    before = list(accumulate(counts, initial=0))[:-1]
    points, ratios, truth, basis = (
        torch.cat([getattr(release, name)[view.members] for release, view in parts])
        for name in ("points", "log_ratios", "truth", "basis")
    )
    known = torch.isfinite(ratios)
    device = points.device
    batch = ContextBatch(
        inputs=points * math.sqrt(points.shape[2]),
        log_ratios=torch.where(known, ratios - ratios[:, :1], 0.0),
        known=known,
        photograph=torch.repeat_interleave(torch.arange(len(parts), device=device), torch.tensor(counts, device=device)),
        neighbors=torch.cat([view.neighbors + first for first, (_, view) in zip(before, parts, strict=True)]),
        distances=torch.cat([view.distances for _, view in parts]),
    )
    return batch, Answers(truth, basis)


def context_loss(module: Any, batch: ContextBatch, answers: Answers) -> Float32[Tensor, ""]:
    """Cross entropy of the beliefs of every round with the modes near the truth, and the distance to it that remains.

    Features without a mode within `MISSED` are left out.
    """
    logs, moves = module(batch)
    points = batch.inputs / math.sqrt(batch.inputs.shape[2])
    gaps = torch.where(batch.known, (points - answers.truth[:, None]).norm(dim=2), math.inf)
    nearest, best = gaps.min(1)
    near = nearest < MISSED
    wanted = torch.softmax(-(gaps.square()) / (2 * NEAR**2), 1)[near]
    weights = np.linspace(FIRST_ROUND, 1, len(logs)) / len(logs)
    count = near.sum().clamp(min=1)
    loss = sum(
        float(weight) * -(wanted * of[near].clamp(min=-50)).sum() / count for weight, of in zip(weights, logs, strict=True)
    )
    at = best[:, None, None].expand(-1, 1, points.shape[2])
    move = moves.gather(1, at)[:, 0]
    inside = torch.einsum("fmn,fm->fn", answers.basis, torch.einsum("fmn,fn->fm", answers.basis, move))
    left = (points.gather(1, at)[:, 0] + inside - answers.truth)[near].norm(dim=1)
    return loss + VERTEX_WEIGHT * left.sum() / count


def _perceptron(inputs: int, hidden: int, outputs: int) -> Any:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs))


class ContextModule(nn.Module):
    """A `ContextNetwork` whose weights can be learned; see there what each of its layers says."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alone, self.style = _perceptron(dim, 128, 1), _perceptron(dim, 128, STYLE)
        self.whole, self.vertex = _perceptron(3 * STYLE, 64, 1), _perceptron(dim, 256, dim)
        self.code, self.distance = _perceptron(dim, 192, CODE), _perceptron(DISTANCE_INPUTS, 32, 2 * INNER)
        self.pair, self.out = nn.Linear(2 * CODE, INNER), nn.Linear(INNER, 1)
        for item in (self.vertex[2].weight, self.vertex[2].bias):  # the way begins with no step
            nn.init.zeros_(item)
        self.sharpness = nn.Parameter(torch.tensor(0.75))
        self.mistaken, self.damping = nn.Parameter(torch.tensor(-2.0)), nn.Parameter(torch.tensor(0.0))  # through a sigmoid

    def forward(self, batch: ContextBatch) -> tuple[list[Tensor], Tensor]:
        """Log beliefs (features, modes) after each round, and the ways (features, modes, dim) to the vertices."""
        hidden = ~batch.known
        alone = self.sharpness * batch.log_ratios + self.alone(batch.inputs)[..., 0]
        alone = alone.masked_fill(hidden, -math.inf)
        style = self.style(batch.inputs)
        fits = self._fits(batch)
        mistaken, damping = torch.sigmoid(self.mistaken), torch.sigmoid(self.damping)
        beliefs, rounds = alone.softmax(1), []
        for number in range(ROUNDS):
            if number % ASKED_EVERY == 0:
                whole = self._fit_to_whole(style, beliefs, batch.photograph)
            heard = torch.einsum("fnab,fnb->fna", fits, _of_neighbors(beliefs, batch.neighbors))
            logs = alone + whole + torch.log(mistaken + (1 - mistaken) * heard).sum(1)
            rounds.append(functional.log_softmax(logs, 1))
            beliefs = (1 - damping) * beliefs + damping * rounds[-1].exp()
        return rounds, VERTEX_SCALE * self.vertex(batch.inputs)

    def _fit_to_whole(self, style: Tensor, beliefs: Tensor, photograph: Tensor) -> Float32[Tensor, "features modes"]:
        """How well each candidate fits what the other features of its photograph say (learned_attacks.md, Eq. 5)."""
        own = torch.einsum("fa,fad->fd", beliefs, style)
        count = torch.bincount(photograph)
        total = torch.zeros((len(count), own.shape[1]), device=own.device).index_add(0, photograph, own)
        others = (total.index_select(0, photograph) - own) / (count[photograph] - 1).clamp(min=1)[:, None]
        spread = others[:, None].expand_as(style)
        return self.whole(torch.cat([style, spread, style * spread], 2))[..., 0]

    def _fits(self, batch: ContextBatch) -> Float32[Tensor, "features neighbors modes modes"]:
        """How many times likelier two candidates of neighbors are at their distance (learned_attacks.md, Eq. 4); 1 for none."""
        codes = self.code(batch.inputs)
        every = []
        for rows, distances in zip(batch.neighbors.T, batch.distances.unbind(1), strict=True):  # one at a time stays in a cache
            left, right = codes[:, :, None], codes.index_select(0, rows)[:, None]
            scale, shift = self.distance(distances)[:, None, None].chunk(2, -1)
            weights = self.pair.weight.T
            compared = (left - right).abs() @ weights[:CODE] + (left * right) @ weights[CODE:] + self.pair.bias
            logs = self.out(functional.silu(compared * (1 + scale) + shift))[..., 0]
            both = batch.known[:, :, None] & batch.known[rows][:, None]
            every.append(torch.where(both, logs.clamp(-LARGEST_FIT, LARGEST_FIT), 0.0).exp())
        return torch.stack(every, 1)

    def network(self, space: Space, source: str) -> ContextNetwork:
        """The network in NumPy, with the weights that were learned."""
        vertex = _read_layers(self.vertex)
        near = NeighborLayers(
            code=_read_layers(self.code),
            pair=_array(self.pair.weight.T),
            pair_bias=_array(self.pair.bias),
            distance=_read_layers(self.distance),
            out=_array(self.out.weight[0]),
            out_bias=float(self.out.bias[0].detach()),
            mistaken=float(torch.sigmoid(self.mistaken.detach())),
        )
        return ContextNetwork(
            space=space,
            alone=_read_layers(self.alone),
            style=_read_layers(self.style),
            whole=_read_layers(self.whole),
            vertex=vertex._replace(w2=vertex.w2 * np.float32(VERTEX_SCALE), b2=vertex.b2 * np.float32(VERTEX_SCALE)),
            neighbors=near,
            sharpness=float(self.sharpness.detach()),
            damping=float(torch.sigmoid(self.damping.detach())),
            source=source,
        )


def _of_neighbors(values: Tensor, neighbors: Int64[Tensor, "features neighbors"]) -> Tensor:
    """Rows of `values` for each neighbor; unlike indexing it has a derivative that is the same in each run on a processor."""
    return values.index_select(0, neighbors.flatten()).unflatten(0, neighbors.shape)


def _array(values: Any) -> Float32[np.ndarray, "..."]:
    return values.detach().cpu().numpy().astype(np.float32).copy(order="C")


def _read_layers(layers: Any) -> Perceptron:
    first, last = layers[0], layers[2]
    return Perceptron(_array(first.weight.T), _array(first.bias), _array(last.weight.T), _array(last.bias))

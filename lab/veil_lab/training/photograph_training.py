"""Transformer over the candidates of all features of a photograph, in torch, its loss and its training.

Theory: learned_attacks.md#whole-photograph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from veil.attacks.distribution.context import DISTANCE_INPUTS, NEIGHBORS, ContextNetwork
from veil.errors import RangeError
from veil_lab.training.context_training import (
    FIRST_ROUND,
    MISSED,
    NEAR,
    VERTEX_SCALE,
    VERTEX_WEIGHT,
    ContextBatch,
    ContextModule,
)
from veil_lab.training.photograph_batches import (
    KINDS,
    AttackedFeatures,
    CandidateStore,
    PhotographBatch,
    batch_of,
    drawn_features,
    read_distances,
)
from veil_lab.training.simulated_releases import Tensor, functional, nn, torch

# What stands for minus infinity, and the lowest log belief that attention and networks read.
MASKED, LEAST_BELIEF = -1e4, -15.0
# Log ratios are read in units of this.
RATIO_UNIT = 4.0


@dataclass(frozen=True, kw_only=True)
class TransformerSizes:
    """Sizes of the transformer: numbers of a token, layers, heads, and hidden numbers of its perceptrons.

    `registers` are tokens that belong to no feature. Raises RangeError where heads do not divide `width`.
    """

    width: int = 128
    layers: int = 5
    heads: int = 8
    hidden: int = 480
    read: int = 160
    distance: int = 32
    registers: int = 10

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.heads, self.hidden, self.read, self.distance, self.registers) < 1:
            raise RangeError(f"sizes of a transformer are at least 1, got {self}")
        if self.width % self.heads:
            raise RangeError(f"{self.heads} heads do not divide a width of {self.width}; choose a multiple")


@dataclass(frozen=True, kw_only=True, eq=False)
class HeardBatch(ContextBatch):
    """A batch of context in which features hear some of their neighbors only: `heard`."""

    heard: Bool[Tensor, "features neighbors"]


class HearingModule(ContextModule):
    """Networks of context that listen only to neighbors that are heard."""

    def _fits(self, batch: Any) -> Float32[Tensor, "features neighbors modes modes"]:
        return torch.where(batch.heard[:, :, None, None], super()._fits(batch), 1.0)

    def spread(self, batch: PhotographBatch) -> list[Float32[Tensor, "photographs features modes"]]:
        """Log beliefs after each round, of the features of a padded batch; zero for padding."""
        return self.answers(batch)[0]

    def answers(self, batch: PhotographBatch) -> tuple[list[Tensor], Tensor]:
        """Log beliefs as `spread` has them, and the ways (photographs, features, modes, dim) to the vertices."""
        real = batch.real
        rounds, ways = self(heard_batch(batch))
        empty = torch.zeros_like(batch.log_ratios)
        logs = [empty.index_put((real,), of.clamp(min=-50.0)) for of in rounds]
        return logs, torch.zeros_like(batch.inputs).index_put((real,), ways)

    def load(self, network: ContextNetwork) -> None:
        """Take the weights of a network that was trained before."""
        near, vertex = network.neighbors, network.vertex
        vertex = vertex._replace(w2=vertex.w2 / np.float32(VERTEX_SCALE), b2=vertex.b2 / np.float32(VERTEX_SCALE))
        layers = {self.alone: network.alone, self.style: network.style, self.whole: network.whole, self.vertex: vertex}
        layers |= {self.code: near.code, self.distance: near.distance}
        with torch.no_grad():
            for module, of in layers.items():
                for place, (weight, bias) in ((0, (of.w1, of.b1)), (2, (of.w2, of.b2))):
                    module[place].weight.copy_(torch.from_numpy(weight.T))
                    module[place].bias.copy_(torch.from_numpy(bias))
            self.pair.weight.copy_(torch.from_numpy(near.pair.T))
            self.pair.bias.copy_(torch.from_numpy(near.pair_bias))
            self.out.weight.copy_(torch.from_numpy(near.out[None]))
            self.out.bias.fill_(near.out_bias)
            self.sharpness.fill_(network.sharpness)
            for parameter, share in ((self.mistaken, near.mistaken), (self.damping, network.damping)):
                parameter.fill_(math.log(share / (1 - share)) if share < 1 else 20.0)


def heard_batch(batch: PhotographBatch) -> HeardBatch:
    """The features of photographs one after the other, each with its nearest keypoints where positions are seen."""
    real = batch.real
    count, width = real.shape
    read = read_distances(batch.keypoints, batch.spacing)
    away = read[..., 2] + torch.where(real, 0.0, math.inf)[:, None]
    away = away.masked_fill(torch.eye(width, dtype=torch.bool, device=away.device), math.inf)
    nearest = away.topk(min(NEIGHBORS, width), 2, largest=False)
    heard = torch.isfinite(nearest.values) & batch.placed[:, None, None]
    places = torch.cumsum(real.flatten(), 0).view(real.shape) - 1  # rows among the features that are real
    rows = places.gather(1, nearest.indices.flatten(1)).view(nearest.indices.shape).clamp(min=0)
    distances = read.gather(2, nearest.indices[..., None].expand(-1, -1, -1, read.shape[3]))
    photograph: Int64[Tensor, "photographs features"] = torch.arange(count, device=real.device)[:, None].expand_as(real)
    return HeardBatch(
        inputs=batch.inputs[real],
        log_ratios=batch.log_ratios[real],
        known=batch.known[real],
        photograph=photograph[real],
        neighbors=rows[real],
        distances=distances[real],
        heard=heard[real],
    )


class TransformerLayer(nn.Module):
    """Attention among all tokens, then a perceptron for each, both beside the identity and after a normalization."""

    def __init__(self, sizes: TransformerSizes, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = sizes.heads, dropout
        self.before_attention, self.before_perceptron = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.asked = nn.Linear(sizes.width, 3 * sizes.width)
        self.answer = nn.Linear(sizes.width, sizes.width)
        self.first, self.second = nn.Linear(sizes.width, sizes.hidden), nn.Linear(sizes.hidden, sizes.width)
        for item in (self.answer, self.second):
            nn.init.normal_(item.weight, std=0.5 / math.sqrt(item.in_features * 2 * sizes.layers))
            nn.init.zeros_(item.bias)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Tokens (photographs, tokens, width) after the layer; `bias` (photographs, heads, tokens, tokens) adds to scores."""
        asked = self.asked(self.before_attention(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = asked.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        tokens = tokens + self._dropped(self.answer(mixed.transpose(1, 2).flatten(2)))
        inner = functional.silu(self.first(self.before_perceptron(tokens)))
        return tokens + self._dropped(self.second(inner))

    def _dropped(self, values: Tensor) -> Tensor:
        return functional.dropout(values, self.dropout, self.training)


class PhotographModule(nn.Module):
    """Transformer over candidates: tokens are the modes of all features of a photograph.

    - `embed` reads a mode, its log ratio, whether positions are seen, and with `begin` what context believes of it.
    - `distance` says for each layer and head how much more a token attends to features at a distance; `same`, `anywhere` and
      `to_registers` take its place within a feature, where positions are hidden, and for registers.
    - `believed` says how much a layer's heads attend to what is believed so far.
    - `choice` and `vertex` read the belief and the way to the vertex.
    """

    def __init__(self, dim: int, sizes: TransformerSizes | None = None, *, begin: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.sizes = sizes = sizes or TransformerSizes()
        self.begin = HearingModule(dim) if begin else None
        width, rows = sizes.width, (sizes.layers, sizes.heads)
        self.embed = _perceptron(dim + 2 + begin, sizes.read, width)
        self.registers = nn.Parameter(torch.randn(sizes.registers, width))
        self.distance = _perceptron(DISTANCE_INPUTS, sizes.distance, sizes.layers * sizes.heads)
        self.same, self.anywhere = nn.Parameter(torch.zeros(rows)), nn.Parameter(torch.zeros(rows))
        self.to_registers, self.believed = nn.Parameter(torch.zeros(rows)), nn.Parameter(torch.full(rows, 0.5))
        self.layers = nn.ModuleList(TransformerLayer(sizes, dropout) for _ in range(sizes.layers))
        self.last = nn.LayerNorm(width)
        self.choice, self.vertex = nn.Linear(width, 1, bias=False), nn.Linear(width, dim)
        for item in (self.choice.weight, self.vertex.weight, self.vertex.bias):
            nn.init.zeros_(item)
        self.sharpness, self.trust = nn.Parameter(torch.tensor(0.75)), nn.Parameter(torch.tensor(1.0))

    def forward(self, batch: PhotographBatch) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Log beliefs before the first layer and after each, the ways to the vertices, and log beliefs of context.

        Shapes: (photographs, features, modes), and dim more for the ways.
        """
        count, features, modes, _ = batch.inputs.shape
        begun: list[Tensor] = []
        parts = [batch.inputs, batch.log_ratios[..., None] / RATIO_UNIT]
        parts.append(batch.placed.float()[:, None, None, None].expand(-1, features, modes, -1))
        first = self.sharpness * batch.log_ratios
        if self.begin is not None:
            with torch.autocast(batch.inputs.device.type, enabled=False):
                begun = self.begin.spread(batch)
            read = begun[-1].clamp(min=LEAST_BELIEF)
            parts.append(read[..., None] / RATIO_UNIT)
            first = self.trust * read
        tokens = self.embed(torch.cat(parts, 3)).float().flatten(1, 2)
        tokens = torch.cat([self.registers.expand(count, -1, -1), tokens], 1)
        attended = self._attended(batch)
        beliefs = [self._beliefs(tokens, first, batch.known)]
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, self._bias(attended[number], beliefs[-1], batch.known, number))
            beliefs.append(self._beliefs(tokens, first, batch.known))
        ways = VERTEX_SCALE * self.vertex(self.last(tokens[:, self.sizes.registers :])).float()
        return beliefs, ways.unflatten(1, (features, modes)), begun

    def _beliefs(self, tokens: Tensor, first: Tensor, known: Tensor) -> Tensor:
        logits = (self.last(tokens[:, self.sizes.registers :]).float() * self.choice.weight.float()[0]).sum(2).view(first.shape)
        return functional.log_softmax((first + logits).masked_fill(~known, MASKED), 2)

    def _attended(self, batch: PhotographBatch) -> Tensor:
        """What is added to scores between features (layers, photographs, heads, queries, keys), the registers first."""
        away = self.distance(read_distances(batch.keypoints, batch.spacing)).float()
        away = away.unflatten(3, (self.sizes.layers, self.sizes.heads)).permute(3, 0, 4, 1, 2)
        away = torch.where(batch.placed[:, None, None, None], away, self.anywhere[:, None, :, None, None])
        itself = torch.eye(away.shape[3], dtype=torch.bool, device=away.device)
        away = torch.where(itself, self.same[:, None, :, None, None], away)
        away = functional.pad(away, (0, 0, 1, 0))  # registers ask everywhere alike
        column = self.to_registers[:, None, :, None, None].expand(-1, away.shape[1], -1, away.shape[3], 1)
        return torch.cat([column, away], 4)

    def _bias(self, attended: Tensor, beliefs: Tensor, known: Tensor, number: int) -> Tensor:
        """What is added to scores of tokens (photographs, heads, queries, keys)."""
        keys = torch.where(known, beliefs.clamp(min=LEAST_BELIEF), 0.0)[:, None] * self.believed[number][:, None, None]
        keys = keys.masked_fill(~known[:, None], MASKED)
        keys = functional.pad(keys, (0, 0, 1, 0))  # registers are as many as modes
        modes = known.shape[2]
        kind = torch.bfloat16 if torch.is_autocast_enabled(known.device.type) else keys.dtype
        blocks = (attended[..., None] + keys[:, :, None]).flatten(3).to(kind)
        return blocks[:, :, :, None].expand(-1, -1, -1, modes, -1).flatten(2, 3)

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights by name, float32; matrices are inputs x outputs."""
        state = {name: item.detach().float().cpu().numpy() for name, item in self.state_dict().items()}
        is_matrix = {name: item.ndim == 2 and name.endswith("weight") for name, item in state.items()}
        return {name: np.ascontiguousarray(item.T if is_matrix[name] else item) for name, item in state.items()}


def photograph_loss(module: PhotographModule, batch: PhotographBatch) -> Float32[Tensor, ""]:
    """Cross entropy of the beliefs of every layer with the modes near the truth, and the distance to it that remains.

    Features without a mode within `MISSED` are left out. Beliefs of context count as much as those of all layers.
    """
    beliefs, ways, begun = module(batch)
    nearest, best = batch.gaps.min(2)
    near = (nearest < MISSED) & batch.judged
    gaps = batch.gaps.clamp(max=10.0)
    wanted = torch.softmax(-gaps.square() / (2 * NEAR**2), 2) * near[..., None]
    count = near.sum().clamp(min=1)
    loss: Any = 0.0
    for logs in (beliefs, begun):
        weights = np.linspace(FIRST_ROUND, 1, len(logs)) / max(len(logs), 1)
        for weight, of in zip(weights, logs, strict=True):
            loss = loss - float(weight) * (wanted * of.clamp(min=-50)).sum() / count
    left = remaining(batch, ways, best).norm(dim=2)
    return loss + VERTEX_WEIGHT * (left * near).sum() / count


def remaining(batch: PhotographBatch, ways: Tensor, chosen: Int64[Tensor, "photographs features"]) -> Tensor:
    """What lies between the chosen modes, moved in their subspaces towards the vertices, and the descriptors."""
    at = chosen[..., None, None].expand(-1, -1, 1, batch.inputs.shape[3])
    points = batch.inputs.gather(2, at)[:, :, 0] / math.sqrt(batch.inputs.shape[3])
    way = ways.gather(2, at)[:, :, 0]
    inside = torch.einsum("pfmn,pfm->pfn", batch.basis, torch.einsum("pfmn,pfn->pfm", batch.basis, way))
    return points + inside - batch.truth


@dataclass(frozen=True, kw_only=True)
class PhotographTraining:
    """Options of the training of the transformer.

    It ends after `seconds` or `steps`, whichever comes first. A batch has photographs of some `pairs` pairs of features in all,
    at most `photographs` of them. `rate` is the largest learning rate; inputs, whose entries are of the order of 1, get normal
    `noise`. What is kept are averages of weights over some `averaged` steps. Raises RangeError for values outside their range.
    """

    seconds: float = math.inf
    steps: int = 1000
    pairs: float = 1.2e6
    photographs: int = 64
    rate: float = 1.2e-3
    decay: float = 0.05
    noise: float = 0.03
    averaged: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.pairs > 0 and min(self.steps, self.photographs, self.averaged) >= 1):
            raise RangeError(f"a training needs time, steps and photographs, got {self}")
        if not (0 < self.rate < 1 and self.decay >= 0 and self.noise >= 0 and self.seed >= 0):
            raise RangeError(f"rate lies between 0 and 1, and decay, noise and seed are 0 or more; got {self}")


def train_photograph(
    module: PhotographModule,
    store: CandidateStore,
    *,
    options: PhotographTraining | None = None,
    on_step: Callable[[int, float, PhotographModule], None] = lambda step, loss, averaged: None,
) -> PhotographModule:
    """The averaged weights of `module`, trained on the releases of `store` on the device where both are.

    `on_step` is called after each step with its number, the loss (NaN but for every 50th step), and the averaged weights so
    far. Where a graphics processor runs out of memory, later batches are smaller.
    """
    options = options or PhotographTraining()
    random, began = np.random.default_rng(options.seed), time.monotonic()
    averaged = deepcopy(module).eval()
    optimizer = torch.optim.AdamW(_groups(module, options), lr=options.rate, betas=(0.9, 0.98), eps=1e-7)
    pairs, step = options.pairs, 0
    module.train()
    while step < options.steps and time.monotonic() - began < options.seconds:
        done = max(step / options.steps, (time.monotonic() - began) / options.seconds)
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1.0, done / 0.04 + 1e-3) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        kind = int(random.choice(len(KINDS), p=KINDS))
        chosen = _within(drawn_features(store, kind, options.photographs, random), pairs)
        try:
            loss = _step(module, optimizer, _noisy(batch_of(store, chosen), options.noise))
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            pairs *= 0.7
            continue
        step += 1
        share = 1 / min(options.averaged, 1 + step / 10)
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(module.parameters()), share)
        on_step(step, float(loss) if step % 50 == 0 else math.nan, averaged)
    return averaged


def _step(module: PhotographModule, optimizer: Any, batch: PhotographBatch) -> Float32[Tensor, ""]:
    """The loss of a batch, after a step against it."""
    device = batch.inputs.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        loss = photograph_loss(module, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def _groups(module: PhotographModule, options: PhotographTraining) -> list[dict[str, Any]]:
    """Parameters with weight decay, which are matrices, and those without."""
    of = list(module.parameters())
    matrices, others = [item for item in of if item.ndim > 1], [item for item in of if item.ndim <= 1]
    return [{"params": matrices, "weight_decay": options.decay}, {"params": others, "weight_decay": 0.0}]


def _within(chosen: list[AttackedFeatures], pairs: float) -> list[AttackedFeatures]:
    """As many of the first as have `pairs` pairs of features when all are padded to the largest; at least one."""
    kept: list[AttackedFeatures] = []
    most = 0
    for item in chosen:
        most = max(most, len(item.rows))
        if kept and (len(kept) + 1) * most**2 > pairs:
            break
        kept.append(item)
    return kept


def _noisy(batch: PhotographBatch, noise: float) -> PhotographBatch:
    return replace(batch, inputs=batch.inputs + noise * torch.randn_like(batch.inputs) * batch.known[..., None])


def _perceptron(inputs: int, hidden: int, outputs: int) -> Any:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs))

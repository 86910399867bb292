"""Transformer over the candidates of all features of a photograph, in torch, its loss and its training.

Theory: learned_attacks.md#whole-photograph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from veil.attacks.distribution.context import DISTANCE_INPUTS
from veil.attacks.distribution.whole_photograph import (
    LEAST_BELIEF,
    MASKED,
    RATIO_UNIT,
    WAY_SCALE,
    PhotographTransformer,
)
from veil.errors import RangeError
from veil.progress import Progress, ignore_progress
from veil.space import Space
from veil_lab.training.context_training import FIRST_ROUND, MISSED, NEAR, VERTEX_WEIGHT
from veil_lab.training.photograph_batches import (
    KINDS,
    MOST_AT_ONCE,
    AttackedFeatures,
    CandidateStore,
    PhotographBatch,
    batch_of,
    drawn_features,
    read_distances,
)
from veil_lab.training.simulated_releases import SimulatedRelease, Tensor, functional, nn, torch

# Pairs of features in a batch, by the kind of device.
PAIRS = {"cpu": 1e5, "cuda": 1.2e6}


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

    - `embed` reads a mode, its log ratio, and whether positions are seen.
    - `distance` says for each layer and head how much more a token attends to features at a distance; `same`, `anywhere` and
      `to_registers` take its place within a feature, where positions are hidden, and for registers.
    - `believed` says how much a layer's heads attend to what is believed so far.
    - `choice` and `vertex` read the belief and the way to the vertex.
    """

    def __init__(self, dim: int, sizes: TransformerSizes | None = None, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.sizes = sizes = sizes or TransformerSizes()
        width, rows = sizes.width, (sizes.layers, sizes.heads)
        self.embed = _perceptron(dim + 2, sizes.read, width)
        self.registers = nn.Parameter(torch.randn(sizes.registers, width))
        self.distance = _perceptron(DISTANCE_INPUTS, sizes.distance, sizes.layers * sizes.heads)
        self.same, self.anywhere = nn.Parameter(torch.zeros(rows)), nn.Parameter(torch.zeros(rows))
        self.to_registers, self.believed = nn.Parameter(torch.zeros(rows)), nn.Parameter(torch.full(rows, 0.5))
        self.layers = nn.ModuleList(TransformerLayer(sizes, dropout) for _ in range(sizes.layers))
        self.last = nn.LayerNorm(width)
        self.choice, self.vertex = nn.Linear(width, 1, bias=False), nn.Linear(width, dim)
        for item in (self.choice.weight, self.vertex.weight, self.vertex.bias):
            nn.init.zeros_(item)
        self.sharpness = nn.Parameter(torch.tensor(0.75))

    def forward(self, batch: PhotographBatch) -> tuple[list[Tensor], Tensor]:
        """Log beliefs before the first layer and after each, and the ways to the vertices.

        Shapes: (photographs, features, modes), and dim more for the ways.
        """
        count, features, modes, _ = batch.inputs.shape
        parts = [batch.inputs, batch.log_ratios[..., None] / RATIO_UNIT]
        parts.append(batch.placed.float()[:, None, None, None].expand(-1, features, modes, -1))
        first = self.sharpness * batch.log_ratios
        tokens = self.embed(torch.cat(parts, 3)).float().flatten(1, 2)
        tokens = torch.cat([self.registers.expand(count, -1, -1), tokens], 1)
        attended = self._attended(batch)
        beliefs = [self._beliefs(tokens, first, batch.known)]
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, self._bias(attended[number], beliefs[-1], batch.known, number))
            beliefs.append(self._beliefs(tokens, first, batch.known))
        ways = WAY_SCALE * self.vertex(self.last(tokens[:, self.sizes.registers :])).float()
        return beliefs, ways.unflatten(1, (features, modes))

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

    def network(self, space: Space, *, source: str) -> PhotographTransformer:
        """The network for NumPy, which never sees positions: what serves them is left out."""
        state = {name: item.detach().float().cpu().numpy() for name, item in self.state_dict().items()}
        arrays = {
            name: np.ascontiguousarray(item.T if item.ndim == 2 and name.endswith("weight") else item)
            for name, item in state.items()
            if not name.startswith("distance.")
        }
        arrays["embed.0.weight"] = arrays["embed.0.weight"][:-1]  # the last row reads whether positions are seen
        return PhotographTransformer(space=space, arrays=arrays, source=source)


def photograph_loss(module: PhotographModule, batch: PhotographBatch) -> Float32[Tensor, ""]:
    """Cross entropy of the beliefs of every layer with the modes near the truth, and the distance to it that remains.

    Features without a mode within `MISSED` are left out.
    """
    beliefs, ways = module(batch)
    nearest, best = batch.gaps.min(2)
    near = (nearest < MISSED) & batch.judged
    gaps = batch.gaps.clamp(max=10.0)
    wanted = torch.softmax(-gaps.square() / (2 * NEAR**2), 2) * near[..., None]
    count = near.sum().clamp(min=1)
    loss: Any = 0.0
    for weight, of in zip(np.linspace(FIRST_ROUND, 1, len(beliefs)) / len(beliefs), beliefs, strict=True):
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

    A batch has at most `photographs` photographs, of some `pairs` pairs of features in all: None stands for 100,000, and on a
    graphics processor for 1.2 million, which take 16 GB. `rate` is the largest learning rate. Inputs, whose entries are of the
    order of 1, get normal `noise`. What is kept are averages of weights over some `averaged` steps.
    Raises RangeError for values outside their range.
    """

    steps: int = 1000
    pairs: float | None = None
    photographs: int = 64
    rate: float = 1.2e-3
    decay: float = 0.05
    noise: float = 0.03
    averaged: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if not min(self.steps, self.photographs, self.averaged) >= 1 or not (self.pairs is None or self.pairs > 0):
            raise RangeError(f"a training needs steps, photographs and pairs, got {self}")
        if not (0 < self.rate < 1 and self.decay >= 0 and self.noise >= 0 and self.seed >= 0):
            raise RangeError(f"rate lies between 0 and 1, and decay, noise and seed are 0 or more; got {self}")


def train_transformer(
    releases: Sequence[SimulatedRelease],
    *,
    space: Space,
    source: str,
    options: PhotographTraining | None = None,
    progress: Progress = ignore_progress,
) -> PhotographTransformer:
    """The transformer for releases in `space` that `releases`, at least one, teach, trained on the device where they are.

    Its source names the releases, steps and seed beside `source`.
    """
    options, store = options or PhotographTraining(), CandidateStore.of(releases)
    torch.manual_seed(options.seed)
    module = PhotographModule(space.dim).to(store.points.device)
    if store.points.device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # has no derivative by what is added to scores
    trained = train_photograph(module, store, options=options, progress=progress)
    return trained.network(space, source=f"{source}; {len(releases)} releases, {options.steps} steps, seed {options.seed}")


def train_photograph(
    module: PhotographModule,
    store: CandidateStore,
    *,
    options: PhotographTraining | None = None,
    progress: Progress = ignore_progress,
) -> PhotographModule:
    """The averaged weights of `module`, trained on the releases of `store` on the device where both are.

    Where a graphics processor runs out of memory, later batches are smaller.
    """
    options = options or PhotographTraining()
    random, device = np.random.default_rng(options.seed), store.points.device.type
    averaged = deepcopy(module).eval()
    optimizer = torch.optim.AdamW(_groups(module, options), lr=options.rate, betas=(0.9, 0.98), eps=1e-7)
    pairs, step = options.pairs or PAIRS[device], 0
    module.train()
    while step < options.steps:
        done = step / options.steps
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1.0, done / 0.04 + 1e-3) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        kind = int(random.choice(len(KINDS), p=KINDS))
        chosen = _within(drawn_features(store, kind, options.photographs, random), pairs)
        try:
            _step(module, optimizer, _noisy(batch_of(store, chosen), options.noise))
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            if pairs < MOST_AT_ONCE**2:  # one photograph is too much
                raise
            pairs *= 0.7
            continue
        step += 1
        share = 1 / min(options.averaged, 1 + step / 10)
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(module.parameters()), share)
        progress(step, options.steps)
    return averaged


def _step(module: PhotographModule, optimizer: Any, batch: PhotographBatch) -> None:
    """One step against the loss of a batch."""
    device = batch.inputs.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        loss = photograph_loss(module, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()


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

"""Neighbor-consistency attack on words: belief propagation over the features of an image.

Epsilon bounds what a feature's own subset says. Neighboring keypoints show neighboring patches, whose words go together. An
attacker learns from its own photographs which words do, and lets each feature's candidates vote for those of the keypoints
around it.

Theory: docs/theory/word_attacks.md, Eq. 8-11; word_attacks.md#neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.attacks.words.cooccurrence import NeighborModel, paired
from veil.attacks.words.posterior import Beliefs, posterior
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Subsets


@dataclass(frozen=True, kw_only=True)
class DenoiseOptions:
    """Options of the neighbors' votes; tuned on photographs of objects at 512 px, 4,096 words, epsilon 10.

    `strength` scales the logarithm of each vote: neighbors of one feature are neighbors of each other, and counting each of
    them fully would count the same evidence several times. Messages are passed in `rounds` rounds; `damping` is the share of
    the previous round's message that a new one keeps. The `candidates` most probable words of each feature have states of their
    own; all other words share one.
    """

    strength: float = 0.6
    rounds: int = 5
    damping: float = 0.5
    candidates: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise RangeError(f"strength must lie in [0, 1], got {self.strength!r}")
        if not 0 <= self.damping < 1:
            raise RangeError(f"damping must lie in [0, 1), got {self.damping!r}")
        if self.rounds < 0 or self.candidates < 1:
            raise RangeError(f"rounds must be at least 0 and candidates 1, got {self.rounds!r} and {self.candidates!r}")


def denoise(
    form: Subsets, keypoints: Float[np.ndarray, "features 2"], model: NeighborModel, *, options: DenoiseOptions | None = None
) -> Beliefs:
    """Probabilities of each feature's words given all subsets of the message and its keypoints (pixels).

    Sum-product messages are passed between neighboring keypoints (docs/theory/word_attacks.md, Eq. 8-11). The state of a
    feature is one of its candidates or "another word", which has the probability of all other words together and votes as they
    do. Raises SpaceError if the model is of another dictionary, InputError unless there is a finite position for each feature.
    """
    options = options or DenoiseOptions()
    if form.dictionary != model.dictionary or form.mechanism.dictionary_size != len(model.frequency):
        raise SpaceError("the model was learned in another dictionary than the words that are attacked; learn it again")
    if keypoints.shape != (len(form), 2) or not np.isfinite(keypoints).all():
        raise InputError(f"the neighbor attack needs a finite position for each of {len(form)} features; lines have none")
    before = posterior(form, prior=model.frequency)
    top = np.argsort(-before.probability, axis=1, kind="stable")[:, : options.candidates]
    words, probability = np.take_along_axis(before.words, top, axis=1), np.take_along_axis(before.probability, top, axis=1)
    rest = np.maximum(1 - probability.sum(axis=1, keepdims=True), 1e-300)
    unary = np.log(np.concatenate([np.maximum(probability, 1e-300), rest], axis=1))
    left, right, distance = paired(keypoints.astype(np.float64), model.options)
    votes = options.strength * _votes(model, words, left, right, distance)
    after = _marginals(unary, left, right, votes, options)
    return Beliefs(words=words, probability=after[:, :-1], dictionary=form.dictionary)


def _votes(
    model: NeighborModel,
    words: Int64[np.ndarray, "features candidates"],
    left: Int64[np.ndarray, "pairs"],
    right: Int64[np.ndarray, "pairs"],
    distance: Int64[np.ndarray, "pairs"],
) -> Float64[np.ndarray, "pairs states states"]:
    """Logarithms of the ratios r of all states of two neighbors; the last state is every other word at once (Eq. 9)."""
    count = words.shape[1]
    share = model.frequency[words]
    votes = np.zeros((len(left), count + 1, count + 1))
    for start in range(0, len(left), 1 << 13):
        part = slice(start, start + (1 << 13))
        i, j = left[part], right[part]
        known = model.log_ratio(words[i][:, :, None], words[j][:, None, :], distance[part][:, None, None])
        votes[part, :count, :count] = known
        ratio = np.exp(known)
        for side, axis, there in ((votes[part, :count, count], 2, j), (votes[part, count, :count], 1, i)):
            weight = share[there][:, None, :] if axis == 2 else share[there][:, :, None]
            left_over = np.maximum(1 - share[there].sum(axis=1, keepdims=True), 1e-12)
            # Estimated ratios need not add up to 1, so what is left for other words may come out too small.
            side[...] = np.log(np.clip((1 - (ratio * weight).sum(axis=axis)) / left_over, 0.05, 20.0))
    return votes


def _marginals(
    unary: Float64[np.ndarray, "features states"],
    left: Int64[np.ndarray, "pairs"],
    right: Int64[np.ndarray, "pairs"],
    votes: Float64[np.ndarray, "pairs states states"],
    options: DenoiseOptions,
) -> Float64[np.ndarray, "features states"]:
    """Probabilities of each feature's states by loopy belief propagation, with damped messages in logarithms (Eq. 10-11)."""
    from scipy.special import logsumexp

    to_right, to_left = np.zeros((2, len(left), unary.shape[1]))
    for _ in range(options.rounds):
        belief = _gathered(unary, left, right, to_left, to_right)
        new_right = logsumexp((belief[left] - to_left)[:, :, None] + votes, axis=1)
        new_left = logsumexp((belief[right] - to_right)[:, None, :] + votes, axis=2)
        for message, new in ((to_right, new_right), (to_left, new_left)):
            new -= logsumexp(new, axis=1, keepdims=True)
            message *= options.damping
            message += (1 - options.damping) * new
    belief = _gathered(unary, left, right, to_left, to_right)
    return np.exp(belief - logsumexp(belief, axis=1, keepdims=True))


def _gathered(
    unary: Float64[np.ndarray, "features states"],
    left: Int64[np.ndarray, "pairs"],
    right: Int64[np.ndarray, "pairs"],
    to_left: Float64[np.ndarray, "pairs states"],
    to_right: Float64[np.ndarray, "pairs states"],
) -> Float64[np.ndarray, "features states"]:
    belief = unary.copy()
    np.add.at(belief, left, to_left)
    np.add.at(belief, right, to_right)
    return belief

"""Words drawn for descriptors, as docs/reference/wire.md has it: exactly by the law, from the operating system's generator."""

from __future__ import annotations

import math
import secrets
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from stranger.codebooks import Codebook
from stranger.messages import Message


def true_words(descriptors: np.ndarray, book: Codebook) -> np.ndarray:
    """The word with the largest inner product with each descriptor, (features,)."""
    wide = descriptors.astype(np.float64)
    unit = wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.argmax(unit @ book.unit.T, axis=1)


def truth(words: int, epsilon: float, m: int) -> Fraction:
    """The probability that the true word is sent, exactly as it is drawn."""
    with localcontext() as context:
        context.prec = 100 + math.ceil(epsilon)
        scaled = int(Decimal(epsilon).exp() * 2**64)
    r = Fraction(max(scaled, 2**64), 2**64)
    return m * r / (m * r + words - m)


def draw(word: int, words: int, m: int, p: Fraction) -> list[int]:
    """Ascending ids for one feature."""
    chosen = {word} if secrets.randbelow(p.denominator) < p.numerator else set()
    while len(chosen) < m:
        other = secrets.randbelow(words - 1)
        chosen.add(other + (other >= word))
    return sorted(chosen)


def message_of(
    descriptors: np.ndarray,
    xy: np.ndarray,
    book: Codebook,
    *,
    epsilon: float,
    m: int,
    camera: tuple[str, int, int, tuple[float, ...]],
    focal_deviation: float | None,
) -> Message:
    """A message of words with positions, its features in random order."""
    order = secrets.SystemRandom().sample(range(len(xy)), len(xy))
    p = truth(len(book.words), epsilon, m)
    drawn = [draw(int(word), len(book.words), m, p) for word in true_words(descriptors, book)[order]]
    model, width, height, params = camera
    return Message(
        model=model,
        width=width,
        height=height,
        params=params,
        focal_deviation=focal_deviation,
        descriptor=book.descriptor,
        normalization=book.normalization,
        dimension=book.words.shape[1],
        m=m,
        xy=xy[order],
        dictionary_size=len(book.words),
        epsilon=epsilon,
        dictionary=bytes.fromhex(book.digest),
        ids=np.array(drawn),
    )

"""Messages that are pinned: inputs that no library's version changes, and a comparison with what was written once."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from veil.forms import Subsets, Subspaces
from veil.wire import Message, decode, encode


def stream(name: str, *shape: int) -> np.ndarray:
    """Bytes that no library's version changes."""
    return np.frombuffer(hashlib.shake_256(name.encode()).digest(int(np.prod(shape))), dtype=np.uint8).reshape(shape)


def require_unchanged(pinned: bytes, made: bytes, *, step: float) -> None:
    """Fail unless a message is the pinned one; numbers of subspaces may differ by one `step` of the precision that was sent."""
    assert len(made) == len(pinned)
    was, now = decode(pinned), decode(made)
    assert encode(_without_numbers(now)) == encode(_without_numbers(was))
    if isinstance(was.form, Subspaces) and isinstance(now.form, Subspaces):
        for sent, then in ((now.form.origin, was.form.origin), (now.form.basis, was.form.basis)):
            assert np.abs(sent.astype(np.float64) - then).max() <= step
    else:
        assert isinstance(was.form, Subsets) and made == pinned


def _without_numbers(message: Message) -> Message:
    """The message with the numbers of its subspaces set aside."""
    if not isinstance(message.form, Subspaces):
        return message
    form = message.form
    flat = np.zeros_like(form.basis)
    flat[:, np.arange(form.m), np.arange(form.m)] = 1
    return replace(message, form=replace(form, origin=np.zeros_like(form.origin), basis=flat))

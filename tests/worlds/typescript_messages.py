"""Vectors of messages for the client in TypeScript, and the streams of bytes that all vectors are made from."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import WireError
from veil.forms import Lines, Subsets
from veil.geometry.camera import GUESS, MODELS, SENT_DEVIATIONS, UNDISCLOSED, Camera
from veil.ldp.mechanism import SubsetMechanism
from veil.randomness import Secret, memoized, subsets_below
from veil.space import Space
from veil.wire import decode, encode
from veil.wire.codec import sanitization
from veil.wire.head import HEAD_BYTES, read_head
from veil.wire.message import LineUpload, Upload
from worlds import lens
from worlds.hostile_cameras import HOSTILE

GOLDEN = Path(__file__).parents[1] / "mechanisms" / "golden"
SECRET = Secret(b"a secret of the vectors".ljust(32, b"."))
SIFT = Space(descriptor="sift", normalization="L2", dim=128)
DAMAGES = 400


def stream(name: str, *shape: int) -> np.ndarray:
    """Bytes that no library's version changes."""
    return np.frombuffer(hashlib.shake_256(name.encode()).digest(math.prod(shape)), dtype=np.uint8).reshape(shape)


def numbers(name: str, count: int) -> np.ndarray:
    """Numbers in [0, 1) with 32 bits."""
    return stream(name, count, 4).copy().view("<u4")[:, 0] / 2.0**32


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ids_of(name: str, count: int, m: int, words: int) -> np.ndarray:
    """Ascending ids below `words`, the first row the least ones and the last one the largest."""
    contexts = [f"{name} {row}".encode() for row in range(count)]
    ids = np.sort(subsets_below(memoized(SECRET), contexts, words, m), axis=1)
    ids[0], ids[-1] = np.arange(m), np.arange(words - m, words)
    return ids.astype(np.uint32)


def message(camera: Camera, *, lines: bool, gravity: bool, count: int = 9, epsilon: float = 8.0) -> Upload | LineUpload:
    """A message of random words about an image of `camera`."""
    law = SubsetMechanism(dictionary_size=1000, epsilon=epsilon, m=3)
    form = Subsets(ids=ids_of("ids", count, 3, 1000), mechanism=law, space=SIFT, dictionary="0f" * 32, releasable=True)
    down = np.array([0.0, 0.8, 0.6]) if gravity else None
    places = numbers("places", 2 * count).reshape(count, 2)
    if not lines:
        keypoints = (places * [camera.width_px, camera.height_px]).astype(np.float32)
        return Upload(camera=camera, keypoints=keypoints, form=form, gravity=down)
    theta = np.pi * places[:, 0]
    coefficients = np.stack([np.cos(theta), np.sin(theta), 0.2 * places[:, 1] - 0.1], axis=1).astype(np.float32)
    aligned = (stream("aligned", count) % 2 == 1) & gravity
    return LineUpload(
        camera=camera, lines=Lines(coefficients=coefficients, aligned=aligned, gravity=down, releasable=True), form=form
    )


def facts(sent: Upload | LineUpload) -> dict[str, Any]:
    """The contents of a message, as JSON values."""
    form, camera = sent.form, sent.camera
    assert isinstance(form, Subsets)
    gravity = sent.lines.gravity if isinstance(sent, LineUpload) else sent.gravity
    deviation = camera.focal.deviation if camera.focal_is_known else None
    seen = sent.lines.coefficients if isinstance(sent, LineUpload) else sent.keypoints
    return {
        "kind": "lines" if isinstance(sent, LineUpload) else "positions",
        "camera": [camera.model, camera.width_px, camera.height_px, list(camera.params), deviation],
        "space": [
            form.space.descriptor,
            form.space.normalization,
            form.space.dim,
            form.space.codebook,
            form.space.dither_steps,
        ],
        "law": [form.mechanism.dictionary_size, repr(form.mechanism.epsilon), form.mechanism.m],
        "dictionary": form.dictionary,
        "ids": form.ids.ravel().tolist(),
        "gravity": None if gravity is None else gravity.tolist(),
        "seen": seen.ravel().tolist(),
        "aligned": sent.lines.aligned.tolist() if isinstance(sent, LineUpload) else None,
    }


def messages() -> list[dict[str, Any]]:
    """Messages of words of every camera model, with positions and lines, with gravity and without, of every class of focal
    length.
    """
    rows = []
    for number, model in enumerate(MODELS):
        for lines, gravity in ((False, False), (False, True), (True, False), (True, True)):
            known = replace(UNDISCLOSED, deviation=SENT_DEVIATIONS[number % 4])
            camera = replace(lens(model), focal=known if gravity != lines else GUESS)
            epsilon = math.inf if lines and gravity else 0.0 if gravity else 8.0
            sent = message(camera, lines=lines, gravity=gravity, epsilon=epsilon)
            rows.append({"bytes": text(encode(sent)), "facts": facts(sent)})
    other = message(lens("PINHOLE"), lines=False, gravity=False)
    space = Space(descriptor="a b", normalization="L1_ROOT", dim=7, codebook="0e" * 32, dither_steps=4.0)
    sent = replace(other, form=replace(other.form, space=space))
    return [*rows, {"bytes": text(encode(sent)), "facts": facts(sent)}]


def heads() -> list[dict[str, Any]]:
    """Headers of golden messages of every kind, with the length of the message and what it says was done to its features."""
    rows = []
    for path in sorted(GOLDEN.glob("*.veil")):
        message = path.read_bytes()
        head = read_head(message)
        case = {"bytes": message[:HEAD_BYTES].hex(), "kind": head.kind, "length": len(message)}
        rows.append({**case, "sanitization": sanitization(head)})
    return rows


def sealed(body: bytes) -> bytes:
    """A body with a checksum that fits, as a hostile sender would make it."""
    return body + hashlib.blake2b(body, digest_size=16, person=b"veil wire v1").digest()


def refusals() -> dict[str, Any]:
    """Damaged and hostile messages, each with what Python says of it: None where it is a message all the same.

    A case is [base, offset, bytes (hex) that stand there instead, whether the checksum is made to fit, verdict]; or
    [None, 0, whole message (hex), False, verdict].
    """
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    bases = [encode(message(lens("OPENCV"), lines=lines, gravity=gravity)) for lines, gravity in kinds]
    whole = [b"", b"VEIL", bases[0][:105], bases[0][:121], bases[0][:-1], bases[0] + b"\0", b"\xff\xd8\xff" + bytes(200)]
    for model, params in HOSTILE.values():
        base = encode(message(lens(model), lines=False, gravity=False))
        size = (640).to_bytes(2, "little") + (480).to_bytes(2, "little")
        own = np.array(params, dtype="<f8").tobytes()
        whole.append(sealed(base[:10] + size + base[14:106] + own + base[106 + len(own) : -16]))
    plain = encode(message(lens("PINHOLE"), lines=False, gravity=False))
    whole += [sealed(plain[:8] + bytes([flags]) + plain[9:-16]) for flags in range(32)]
    cases: list[list[Any]] = [[None, 0, case.hex(), False, verdict(case)] for case in whole]
    for number in range(DAMAGES):
        which, high, low, how, *put = stream(f"damage {number}", 7).tolist()
        base, spot = bases[which % 4], high << 8 | low
        # Most damage hits where most of what can be refused stands.
        places = [*range(26), *range(60, 74), *range(106, 170)]
        at = spot % (len(base) - 20) if how & 1 else places[spot % len(places)]
        new = bytes(put[: 1 + how % 3])
        edited = base[:at] + new + base[at + len(new) :]
        is_sealed = bool(how & 96)
        told = verdict(sealed(edited[:-16]) if is_sealed else edited)
        cases.append([which % 4, at, new.hex(), is_sealed, told])
    return {"bases": [base.hex() for base in bases], "cases": cases}


def verdict(case: bytes) -> str | None:
    try:
        decode(case)
    except WireError as error:
        return error.cause
    return None

"""Vectors for the client in TypeScript: what Python computes, as JSON that its tests compare with.

`python -m worlds.typescript`, run in `tests/`, writes them to `clients/typescript/tests/vectors.json`, and
`tests/client/test_typescript.py` compares that file with what this module computes. Inputs come from SHAKE-256, so that no
random generator's version enters.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from veil.codebooks.codebook import Provenance
from veil.codebooks.dictionary import Dictionary
from veil.errors import RangeError, WireError
from veil.extraction.picture import picture
from veil.features import Features
from veil.forms import Lines, Subsets
from veil.geometry.camera import MODELS, Camera
from veil.ldp.composition import basic_epsilon, composed_epsilon
from veil.ldp.mechanism import SCALE, SubsetMechanism
from veil.mechanisms.release import privatize_words, pseudonym
from veil.mechanisms.words import randomized
from veil.randomness import Secret, bernoulli, integers_below, memoized, subsets_below
from veil.space import Space
from veil.wire import decode, encode
from veil.wire.message import LineUpload, Upload
from veil.wire.packing import packed, rice_width
from veil.wire.receipts import BEGIN, Receipt
from worlds import lens
from worlds.hostile_cameras import HOSTILE

PATH = Path(__file__).parents[2] / "clients" / "typescript" / "tests" / "vectors.json"
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


def mechanisms() -> list[dict[str, Any]]:
    """Exact laws, or why there is none: e^epsilon of many epsilons, small, usual, large and refused ones."""
    small = [0.0, 5e-324, 1e-300, 2.0**-70, 2.0**-64, 2.0**-53, 1e-9]
    usual = [*small, math.log(2), 1.0, 8.0, 10.0, 30.0, 37.0, 38.0, 45.0, 46.0, 80.0]
    drawn = [float(value) for value in 46 * numbers("epsilons", 150)]
    cases = [(16384, epsilon, 2) for epsilon in [*usual, *drawn, math.inf, math.nan, -1.0]]
    cases += [(2, 1.0, 1), (1, 1.0, 1), (10, 1.0, 10), (10, 1.0, 0), (256000, 12.5, 8), (4_000_000_000, 20.0, 64)]
    found = []
    for words, epsilon, m in cases:
        case: dict[str, Any] = {"dictionarySize": words, "epsilon": repr(float(epsilon)), "m": m}
        try:
            law = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
        except RangeError as error:
            found.append({**case, "refused": str(error)})
            continue
        odds = None if math.isinf(epsilon) else str(int(law.odds * SCALE))
        found.append({**case, "odds": odds, "truth": [str(law.truth.numerator), str(law.truth.denominator)]})
    return found


def draws() -> dict[str, Any]:
    """Draws of one secret: 64-bit words, booleans, integers and subsets, and whole subsets of a mechanism."""
    source = memoized(SECRET)
    contexts = [stream(f"context {n}", n).tobytes() for n in range(40)]
    half = Fraction(1 << 63, 1 << 64)
    law = SubsetMechanism(dictionary_size=50, epsilon=3.0, m=4)
    bounds = [(1 << 63) - 5, 3, 1, (1 << 62) + 1, 1 << 53]
    rows = [int(value) for value in stream("true words", 40) % 50]
    return {
        "secret": SECRET.key.hex(),
        "fingerprint": SECRET.fingerprint,
        "pseudonym": pseudonym(SECRET, bytes(32)),
        "contexts": [context.hex() for context in contexts],
        "bits64": [[str(bits) for bits in row] for row in source.bits64(contexts, 20).tolist()],
        "third": [bool(drawn) for drawn in bernoulli(source, contexts, Fraction(1, 3))],
        "half": [bool(drawn) for drawn in bernoulli(source, contexts, half)],
        "bounds": [str(bound) for bound in bounds],
        "integers": [[str(value) for value in row] for row in integers_below(source, contexts, bounds).tolist()],
        "subsets": subsets_below(source, contexts, 12, 8).tolist(),
        "trueWords": rows,
        "words": randomized(np.array(rows, dtype=np.int64), law, source, contexts).tolist(),
    }


def ids_of(name: str, count: int, m: int, words: int) -> np.ndarray:
    """Ascending ids below `words`, the first row the least ones and the last one the largest."""
    contexts = [f"{name} {row}".encode() for row in range(count)]
    ids = np.sort(subsets_below(memoized(SECRET), contexts, words, m), axis=1)
    ids[0], ids[-1] = np.arange(m), np.arange(words - m, words)
    return ids.astype(np.uint32)


def packings() -> list[dict[str, Any]]:
    shapes = [(2, 1, 5), (3, 2, 7), (1000, 1, 9), (1000, 999, 3), (16384, 2, 50), (256_000, 8, 20), (4_294_967_295, 5, 11)]
    found = []
    for words, m, count in shapes:
        ids = ids_of(f"{words} {m}", count, m, words)
        case = {"dictionarySize": words, "m": m, "features": count, "width": rice_width(words, m)}
        found.append({**case, "ids": ids.ravel().tolist(), "packed": text(packed(ids, words))})
    return found


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
    """What a message holds, as JSON values."""
    form, camera = sent.form, sent.camera
    assert isinstance(form, Subsets)
    gravity = sent.lines.gravity if isinstance(sent, LineUpload) else sent.gravity
    seen = sent.lines.coefficients if isinstance(sent, LineUpload) else sent.keypoints
    return {
        "kind": "lines" if isinstance(sent, LineUpload) else "positions",
        "camera": [camera.model, camera.width_px, camera.height_px, list(camera.params), camera.focal_is_known],
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
    """Messages of words of every camera model, with positions and lines, with gravity and without."""
    found = []
    for model in MODELS:
        for lines, gravity in ((False, False), (False, True), (True, False), (True, True)):
            camera = replace(lens(model), focal_is_known=gravity != lines)
            epsilon = math.inf if lines and gravity else 0.0 if gravity else 8.0
            sent = message(camera, lines=lines, gravity=gravity, epsilon=epsilon)
            found.append({"bytes": text(encode(sent)), "facts": facts(sent)})
    other = message(lens("PINHOLE"), lines=False, gravity=False)
    space = Space(descriptor="a b", normalization="L1_ROOT", dim=7, codebook="0e" * 32, dither_steps=4.0)
    sent = replace(other, form=replace(other.form, space=space))
    return [*found, {"bytes": text(encode(sent)), "facts": facts(sent)}]


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
        return str(error)
    return None


def book(*, floats: bool) -> Dictionary:
    """A dictionary of 90 words, some of them alike."""
    words = stream("words", 90, 128) % 120
    words[50:60] = words[:10]
    words[50:60, 0] += 1
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=(words / 3).astype(np.float32) if floats else words,
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="vectors: « straße »", license="none", image_count=0, descriptor_count=90),
    )


def image() -> Features:
    """Features of a picture, some of them equal in everything."""
    descriptors = np.where(stream("descriptors", 40, 128) > 200, stream("values", 40, 128) // 3, 0).astype(np.uint8)
    descriptors[:, 0] += 1
    places = numbers("image", 80).reshape(40, 2) * [640, 480]
    descriptors[30:33], places[30:33] = descriptors[3], places[3]
    return Features(
        keypoints=places.astype(np.float32),
        descriptors=descriptors,
        space=SIFT,
        camera=Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.03)),
        image_digest=hashlib.sha256(b"the vectors' image").digest(),
    )


def releases() -> dict[str, Any]:
    """Whole releases of one image under one secret."""
    features, found = image(), []
    for floats in (False, True):
        words = book(floats=floats)
        for epsilon, m, sent in ((6.0, 2, None), (1e-5, 5, 25), (0.0, 1, 100), (math.inf, 2, None)):
            law = SubsetMechanism(dictionary_size=90, epsilon=epsilon, m=m)
            made = privatize_words(features, mechanism=law, dictionary=words, randomness=memoized(SECRET), features_sent=sent)
            found.append(
                {
                    "floats": floats,
                    "law": [90, repr(epsilon), m],
                    "sent": sent,
                    "text": made.parameters.text,
                    "order": made.order.tolist(),
                    "missing": made.missing,
                    "error": [f"{value:.6f}" for value in made.quantization_error],
                    "bytes": text(encode(made.upload)),
                }
            )
    return {
        "keypoints": text(features.keypoints.astype("<f4").tobytes()),
        "descriptors": text(features.descriptors.tobytes()),
        "digest": features.image_digest.hex(),
        "params": list(features.camera.params),
        "words": text(book(floats=False).stored.tobytes()),
        "books": [book(floats=floats).digest for floats in (False, True)],
        "releases": found,
    }


def compositions() -> list[dict[str, Any]]:
    found = []
    for words, epsilon, m, count, delta in (
        (16384, 8.0, 2, 1, 1e-6),
        (16384, 8.0, 2, 1000, 1e-6),
        (16384, 0.1, 2, 500, 1e-9),
        (256000, 12.0, 4, 37, 1e-3),
        (200, 0.0, 2, 100, 1e-6),
    ):
        spent = {SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m): count}
        law = [words, repr(epsilon), m]
        exact, basic = composed_epsilon(spent, delta), basic_epsilon(spent)
        found.append({"law": law, "count": count, "delta": delta, "exact": f"{exact:.9g}", "basic": repr(basic)})
    return found


def receipts() -> list[str]:
    """A chain of receipts as a server's JSON, with texts and numbers that are spelled in one way alone."""
    contents: list[dict[str, Any]] = [
        {"contribution": "c1", "bytes": 1234, "deleted": 1795535402.0, "why": "asked", "map": "straße \U0001f4f7 \x7f\n"},
        {"z": 1e22, "a": [1.0, -0.0, 1e-7, True, None, {"b": {}, "ä": []}], "message_sha256": "00" * 32},
    ]
    before, found = BEGIN, []
    for number, content in enumerate(contents, start=1):
        receipt = Receipt(number=number, content=content, before=before)
        found.append(json.dumps(receipt.as_json(), ensure_ascii=False, separators=(",", ":")))
        before = receipt.digest
    return found


def vectors() -> str:
    """All vectors as JSON."""
    pixels = stream("pixels", 20, 30, 3)
    values = [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 123456789.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, -2.5, 1e22]
    values += [math.inf, -math.inf, math.nan, *(1e6 * numbers("numbers", 50)).tolist()]
    found = {
        "numbers": [[repr(value), f"{value:g}", f"{value:.3g}"] for value in values],
        "mechanisms": mechanisms(),
        "draws": draws(),
        "packings": packings(),
        "messages": messages(),
        "refusals": refusals(),
        "image": releases(),
        "compositions": compositions(),
        "picture": {"rgb": text(pixels.tobytes()), "digest": picture(pixels, {}, None).digest.hex()},
        "receipts": receipts(),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    PATH.write_text(vectors())

"""Vectors for the client in TypeScript: what Python computes, as JSON that its tests compare with.

`python -m worlds.typescript`, run in `tests/`, writes them to `clients/typescript/tests/vectors.json`, and
`tests/client/test_typescript.py` compares that file with what this module computes. Inputs come from SHAKE-256, so that no
random generator's version enters.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.special import ndtri

from veil.codebooks.codebook import Provenance
from veil.codebooks.dictionary import Dictionary
from veil.device.device import Device
from veil.device.protection import HideInWords, Protection
from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.features import Features
from veil.files.device.drawn import _sealed
from veil.files.device.secret import SECRET as SECRET_FILE
from veil.geometry.camera import Camera
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SCALE, SubsetMechanism
from veil.ldp.rounding import outward, outward_percent
from veil.mechanisms.public import publish
from veil.mechanisms.release import privatize_words, pseudonym
from veil.mechanisms.repeats import sketched
from veil.mechanisms.words import randomized
from veil.randomness import bernoulli, integers_below, memoized, subsets_below
from veil.wire import encode
from veil.wire.packing import packed, rice_width
from veil.wire.receipts import BEGIN, Receipt
from worlds.typescript_messages import SECRET, SIFT, heads, ids_of, messages, numbers, refusals, stream, text

PATH = Path(__file__).parents[2] / "clients" / "typescript" / "tests" / "vectors.json"


def mechanisms() -> list[dict[str, Any]]:
    """Exact laws, or why there is none: e^epsilon of many epsilons, small, usual, large and refused ones."""
    small = [0.0, 5e-324, 1e-300, 2.0**-70, 2.0**-64, 2.0**-53, 1e-9]
    usual = [*small, math.log(2), 1.0, 8.0, 10.0, 30.0, 37.0, 38.0, 45.0, 46.0, 80.0]
    drawn = [float(value) for value in 46 * numbers("epsilons", 150)]
    cases = [(16384, epsilon, 2) for epsilon in [*usual, *drawn, math.inf, math.nan, -1.0]]
    cases += [(2, 1.0, 1), (1, 1.0, 1), (10, 1.0, 10), (10, 1.0, 0), (256000, 12.5, 8), (4_000_000_000, 20.0, 64)]
    rows = []
    for words, epsilon, m in cases:
        case: dict[str, Any] = {"dictionarySize": words, "epsilon": repr(float(epsilon)), "m": m}
        try:
            law = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
        except RangeError as error:
            rows.append({**case, "refused": str(error)})
            continue
        odds = None if math.isinf(epsilon) else str(int(law.odds * SCALE))
        rows.append({**case, "odds": odds, "truth": [str(law.truth.numerator), str(law.truth.denominator)]})
    return rows


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


def packings() -> list[dict[str, Any]]:
    shapes = [(2, 1, 5), (3, 2, 7), (1000, 1, 9), (1000, 999, 3), (16384, 2, 50), (256_000, 8, 20), (4_294_967_295, 5, 11)]
    rows = []
    for words, m, count in shapes:
        ids = ids_of(f"{words} {m}", count, m, words)
        case = {"dictionarySize": words, "m": m, "features": count, "width": rice_width(words, m)}
        rows.append({**case, "ids": ids.ravel().tolist(), "packed": text(packed(ids, words))})
    return rows


def dictionary(*, floats: bool) -> Dictionary:
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
    features, rows = image(), []
    for floats in (False, True):
        words = dictionary(floats=floats)
        for epsilon, m, sent in ((6.0, 2, None), (1e-5, 5, 25), (0.0, 1, 100), (math.inf, 2, None)):
            law = SubsetMechanism(dictionary_size=90, epsilon=epsilon, m=m)
            made = privatize_words(features, mechanism=law, dictionary=words, randomness=memoized(SECRET), features_sent=sent)
            rows.append(
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
        "words": text(dictionary(floats=False).stored.tobytes()),
        "books": [dictionary(floats=floats).digest for floats in (False, True)],
        "releases": rows,
    }


def frame(number: int) -> Features:
    """Frame of a video: the picture with some noise. From frame 1 on feature 10 comes twice, and the last five are new."""
    first = image()
    noise = stream(f"noise of frame {number}", 40, 128) % 4 * (first.descriptors > 0) if number else 0
    descriptors = (first.descriptors + noise).astype(np.uint8)
    if number:
        descriptors[34] = descriptors[10] + 1
        descriptors[35:] = np.where(stream(f"new {number}", 5, 128) > 200, stream(f"values of new {number}", 5, 128), 1)
    moved = first.keypoints + numbers(f"moved {number}", 80).reshape(40, 2).astype(np.float32)
    return replace(
        first,
        descriptors=descriptors,
        keypoints=np.minimum(moved, [639, 479]).astype(np.float32),
        image_digest=hashlib.sha256(b"frame %d" % number).digest(),
    )


def repeats() -> dict[str, Any]:
    """Sketches, a sealed text, and the frames of a video, as a device releases them that knows what left before."""
    law = HideInWords(epsilon=6.0, dictionary=dictionary(floats=False))
    frames, inverted = [frame(number) for number in range(4)], [*numbers("quantiles", 40).tolist(), 0.5, 1e-9, 1e-300]
    rows = []
    with TemporaryDirectory() as folder:
        secret = Path(folder) / SECRET_FILE
        secret.write_bytes(SECRET.key)
        secret.chmod(0o600)
        device = Device(folder)
        for one in frames:
            made = device.release(one, Protection(descriptors=law), purpose="localize")
            rows.append(
                {
                    "keypoints": text(one.keypoints.astype("<f4").tobytes()),
                    "descriptors": text(one.descriptors.tobytes()),
                    "digest": one.image_digest.hex(),
                    "shownBefore": made.shown_before,
                    "bytes": text(made.message),
                }
            )
    return {
        "sketches": text(sketched(publish(image()).vectors, memoized(SECRET)).tobytes()),
        "quantiles": [[repr(value), f"{ndtri(value):.13g}"] for value in inverted],
        "seal": [text(content := b"words that left before " * 20), text(_sealed(content, SECRET, nonce=bytes(range(16))))],
        "frames": rows,
    }


def compositions() -> list[dict[str, Any]]:
    rows = []
    for words, epsilon, m, count, delta in (
        (16384, 8.0, 2, 1, 1e-6),
        (16384, 8.0, 2, 1000, 1e-6),
        (16384, 0.1, 2, 500, 1e-9),
        (256000, 12.0, 4, 37, 1e-3),
        (200, 0.0, 2, 100, 1e-6),
    ):
        spent = {SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m): count}
        law = [words, repr(epsilon), m]
        exact, basic = composed_epsilon(spent, delta), composed_epsilon(spent)
        rows.append({"law": law, "count": count, "delta": delta, "exact": f"{exact:.9g}", "basic": repr(basic)})
    return rows


def receipts() -> list[str]:
    """A chain of receipts as a server's JSON, with texts and numbers that are spelled in one way alone."""
    contents: list[dict[str, Any]] = [
        {"contribution": "c1", "bytes": 1234, "deleted": 1795535402.0, "why": "asked", "map": "straße \U0001f4f7 \x7f\n"},
        {"z": 1e22, "a": [1.0, -0.0, 1e-7, True, None, {"b": {}, "ä": []}], "message_sha256": "00" * 32},
    ]
    before, rows = BEGIN, []
    for number, content in enumerate(contents, start=1):
        receipt = Receipt(number=number, content=content, before=before)
        rows.append(json.dumps(receipt.as_json(), ensure_ascii=False, separators=(",", ":")))
        before = receipt.digest
    return rows


def no_losses() -> list[list[str]]:
    """Values that are no privacy losses, each with the text that it is refused with."""
    rows = []
    for value in (math.nan, -1.0, -5e-324, -math.inf):
        try:
            outward(value)
        except RangeError as error:
            rows.append([repr(value), str(error)])
    return rows


def vectors() -> str:
    """All vectors as JSON."""
    pixels = stream("pixels", 20, 30, 3)
    values = [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 123456789.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, -2.5, 1e22]
    values += [math.inf, -math.inf, math.nan, *(1e6 * numbers("numbers", 50)).tolist()]
    losses = [0.0, -0.0, 0.07, 0.1, 0.29, 1e-7, 0.99996, 9.9996, 657.3400001, 9999.0, 9999.5, 20196.2, 1e22, 1e23, math.inf]
    losses += [*(1e6 * numbers("losses", 20)).tolist(), *numbers("probabilities", 20).tolist()]
    content = {
        "losses": [[repr(value), outward(value), outward(value, 6), outward_percent(value)] for value in losses],
        "no_losses": no_losses(),
        "numbers": [[repr(value), f"{value:g}", f"{value:.3g}"] for value in values],
        "mechanisms": mechanisms(),
        "draws": draws(),
        "packings": packings(),
        "messages": messages(),
        "heads": heads(),
        "refusals": refusals(),
        "image": releases(),
        "repeats": repeats(),
        "compositions": compositions(),
        "picture": {"rgb": text(pixels.tobytes()), "digest": Picture.of(pixels, {}, None).digest.hex()},
        "receipts": receipts(),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    PATH.write_text(vectors())

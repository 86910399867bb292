"""Messages carry or refuse each field; random and hostile bytes are decoded in test_wire_fuzz.py."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError, WireError
from veil.forms import Subspaces
from veil.geometry.camera import (
    CALIBRATED,
    FROM_DATABASE,
    FROM_EXIF,
    GIVEN,
    GUESS,
    MODELS,
    REFINED,
    SENT_DEVIATIONS,
    UNDISCLOSED,
    FocalPrior,
)
from veil.space import Space
from veil.wire.codec import CHECKSUM_BYTES, MAX_FEATURES, decode, encode
from veil.wire.message import Message, Upload
from worlds import camera, generator, lens, sift_like, subspaces, unit

GOLDEN = Path(__file__).parents[1] / "mechanisms" / "golden"
SMALL = Space(descriptor="sift", normalization="L2", dim=8)


def upload(space: Space = SMALL, *, count: int = 5, m: int = 2) -> Upload:
    random = generator(f"codec {space} {count} {m}")
    form = subspaces(random, unit(sift_like(random, count, space.dim)), m, space)
    return Upload(camera=camera(), keypoints=random.uniform(0, 400, (count, 2)).astype(np.float32), form=form)


def form_of(sent: Message) -> Subspaces:
    assert isinstance(sent.form, Subspaces)
    return sent.form


def with_form(changed: Subspaces) -> Upload:
    return Upload(camera=camera(), keypoints=np.zeros((len(changed), 2), dtype=np.float32), form=changed)


def resealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


@pytest.mark.slow
@pytest.mark.parametrize("known", [*SENT_DEVIATIONS, None])
@pytest.mark.parametrize("model", MODELS)
def test_every_camera_survives_exactly(model: str, known: float | None) -> None:
    """Inverse pair, to the last bit: camera parameters are sent in double precision."""
    sent = replace(lens(model), focal=replace(UNDISCLOSED, deviation=known) if known else GUESS)
    assert decode(encode(replace(upload(), camera=sent), dtype="float16")).camera == sent


def message_with(focal: FocalPrior) -> bytes:
    """The message of an image whose focal length has this prior."""
    return encode(replace(upload(), camera=replace(camera(), focal=focal)), dtype="float16")


@pytest.mark.parametrize("origin", [FROM_EXIF, GIVEN, CALIBRATED, FROM_DATABASE, REFINED], ids=repr)
def test_no_message_says_where_a_focal_length_comes_from(origin: FocalPrior) -> None:
    """Oracle: the bytes of a message whose focal length is known as well without a source."""
    assert message_with(origin) == message_with(replace(origin, origin="undisclosed"))
    assert decode(message_with(origin)).camera.focal == replace(origin, origin="undisclosed")


def test_deviations_of_focal_lengths_are_sent_in_five_classes() -> None:
    """Oracle: the table of docs/reference/wire.md, by hand: bits 0, 2 and 3 of the flags, deviations rounded up."""
    table = {0.01: 0b0101, 0.02: 0b1001, 0.05: 0b0001, 0.1: 0b1101}
    plain = message_with(GUESS)
    for deviation in (1e-6, 0.0099, 0.01, 0.0101, 0.02, 0.021, 0.05, 0.0501, 0.1):
        sent = message_with(FocalPrior(origin="EXIF", deviation=deviation))
        least = min(each for each in table if each >= deviation)
        assert sent[8] == table[least]
        assert (sent[:8], sent[9:-CHECKSUM_BYTES]) == (plain[:8], plain[9:-CHECKSUM_BYTES])
        assert decode(sent).camera.focal == FocalPrior(origin="undisclosed", deviation=least)
    for unknown in (GUESS, FocalPrior(origin="guess", deviation=0.03), FocalPrior(origin="given", deviation=0.1001)):
        assert message_with(unknown) == plain and plain[8] == 0
    assert decode(plain).camera.focal == GUESS


def test_messages_without_a_class_are_what_they_were() -> None:
    """A golden message without a class: bit 0 of the flags alone is a focal length known to 5 %."""
    message = (GOLDEN / "paper.veil").read_bytes()
    assert message[8] == 1
    assert decode(message).camera.focal == UNDISCLOSED == FocalPrior(origin="undisclosed", deviation=0.05)


@pytest.mark.parametrize(
    "space",
    [
        replace(SMALL, normalization="L1_ROOT"),
        replace(SMALL, descriptor="x" * 32),
        replace(SMALL, descriptor="a b"),
        replace(SMALL, codebook="0f" * 32),
        replace(SMALL, codebook="0f" * 32, dither_steps=4.0),
        replace(SMALL, dim=2),
    ],
    ids=str,
)
def test_every_part_of_the_space_survives_exactly(space: Space) -> None:
    """Inverse pair: a space that changed on the wire would compare with nothing, or with the wrong thing."""
    assert decode(encode(upload(space, m=1), dtype="float32")).form.space == space


def test_what_decode_would_refuse_is_not_encoded() -> None:
    """The device refuses no features, a name that the header would cut off, and numbers that are not finite."""
    good = form_of(upload())
    nothing = good.take(np.arange(0))
    far = replace(good, origin=good.origin * np.float32(1e5))
    broken = replace(good, basis=good.basis * np.float32(np.nan))
    for form, words in (
        (nothing, "1 to 131072 features"),
        (replace(good, profile="seventeen letters"), "1 to 16 printable"),
        (replace(good, profile=""), "1 to 16 printable"),
        (replace(good, profile="härtened"), "1 to 16 printable"),
        (far, "NaN, infinity or numbers far"),
        (broken, "NaN, infinity or numbers far"),
    ):
        with pytest.raises(InputError, match=words):
            encode(with_form(form), dtype="float16")
    got = decode(encode(with_form(replace(good, profile="sixteen letters!")), dtype="float16"))
    assert form_of(got).profile == "sixteen letters!"


def test_the_number_of_features_is_limited() -> None:
    """One feature more than the limit is refused before anything is written."""
    count = MAX_FEATURES + 1
    form = Subspaces(
        origin=np.zeros((count, 2), dtype=np.float32),
        basis=np.ones((count, 1, 2), dtype=np.float32),
        space=replace(SMALL, dim=2),
        guarantee=upload().form.guarantee,
        profile="paper",
        releasable=True,
    )
    with pytest.raises(InputError, match=f"1 to {MAX_FEATURES} features, got {count}"):
        encode(with_form(form), dtype="float16")


def test_every_value_of_every_small_field() -> None:
    """Enumeration of the header's bytes with a good checksum: exactly the documented values are accepted."""
    body = encode(upload(), dtype="float16")[:-CHECKSUM_BYTES]
    # docs/reference/wire.md: offset -> values that leave a message of the same length valid.
    # Other models of four parameters would read the principal point as distortion, which no lens has.
    valid = {4: {1}, 5: {1}, 6: {2}, 7: {list(MODELS).index("PINHOLE")}, 8: {0, 1, 5, 9, 13}, 9: {0, 1}}
    for offset, accepted in valid.items():
        for value in range(256):
            changed = bytearray(body)
            changed[offset] = value
            if value in accepted:
                decode(resealed(bytes(changed)))
            else:
                with pytest.raises(WireError):
                    decode(resealed(bytes(changed)))


@pytest.mark.parametrize("item_bytes", [0, 1, 3, 8, 255])
def test_other_precisions_are_refused_even_if_the_length_fits(item_bytes: int) -> None:
    """The length check alone would let a message of doubles pass and read them as floats."""
    sent = upload()
    body = bytearray(encode(sent, dtype="float16")[:-CHECKSUM_BYTES])
    body[6] = item_bytes
    payload = 2 * (form_of(sent).origin.size + form_of(sent).basis.size)
    with pytest.raises(WireError, match="precision"):
        decode(resealed(bytes(body[:-payload]) + bytes(item_bytes * payload // 2)))


def test_distances_between_uploads_survive_half_precision() -> None:
    """Second method: squared gaps from the normal equations in float64, before and after the wire."""
    sent = upload(replace(SMALL, dim=64), count=12, m=4)
    got = decode(encode(sent, dtype="float16"))
    for i in range(12):
        for j in range(i):
            before = _gap(form_of(sent), i, j)
            assert _gap(form_of(got), i, j) == pytest.approx(before, abs=3e-3)
            assert before > 0.05  # so that the tolerance means something


def _gap(form: Subspaces, i: int, j: int) -> float:
    directions = np.vstack([form.basis[i], form.basis[j]]).astype(np.float64)
    offset = form.origin[j].astype(np.float64) - form.origin[i]
    inside = np.linalg.lstsq(directions.T, offset, rcond=None)[0] @ directions
    return float(np.linalg.norm(offset - inside))


@pytest.mark.parametrize(("dim", "m", "count"), [(64, 32, 60), (256, 200, 6), (1024, 1000, 1), (2, 1, 20000)])
def test_memory_of_extreme_shapes_stays_a_small_multiple(dim: int, m: int, count: int) -> None:
    """Memory for few wide bases or many narrow ones: QR in float64 needs copies, but never of the whole message at once."""
    random = generator("extreme")
    space = replace(SMALL, dim=dim)
    basis = random.normal(size=(count, m, dim)).astype(np.float32)
    form = Subspaces(
        origin=np.zeros((count, dim), dtype=np.float32),
        basis=basis / np.linalg.norm(basis, axis=2, keepdims=True),
        space=space,
        guarantee=upload().form.guarantee,
        profile="paper",
        releasable=True,
    )
    message = encode(with_form(form), dtype="float16")
    tracemalloc.start()
    try:
        decode(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The result in float32, and five float64 copies (QR) of half a megabyte of bases or of the only one that is larger.
    assert peak < 3 * len(message) + 5 * max(8 * m * dim, 1 << 19) + (1 << 19)

"""Messages of words: decoding inverts encoding, a golden message, every field, and thousands of hostile messages."""

from __future__ import annotations

import hashlib
import math
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.errors import InputError, VeilError, WireError
from veil.forms import Released, Subsets
from veil.geometry.camera import GUESS
from veil.ldp.mechanism import SubsetMechanism
from veil.space import Space
from veil.wire.codec import CHECKSUM_BYTES, decode, encode
from veil.wire.message import LineUpload, Message, Upload
from veil.wire.packing import packed_sizes
from worlds import camera, generator, lens
from worlds.word_uploads import DICTIONARY, subsets, word_line_upload, word_upload

HEAD_BYTES, OWN = 106, struct.Struct("<IdI")
FUZZ_CASES = 10_000


def sealed(body: bytes) -> bytes:
    """Message body with a checksum that fits, as a hostile sender would make it."""
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


def changed(message: bytes, offset: int, value: bytes) -> bytes:
    """Message with other bytes at `offset`, and a checksum that fits."""
    body = message[:-CHECKSUM_BYTES]
    return sealed(body[:offset] + value + body[offset + len(value) :])


def words_of(message: Message) -> Subsets:
    assert isinstance(message.form, Subsets)
    return message.form


def assert_same(form: Released, sent: Subsets) -> None:
    assert isinstance(form, Subsets) and form.releasable
    np.testing.assert_array_equal(form.ids, sent.ids)
    assert (form.mechanism, form.space, form.dictionary) == (sent.mechanism, sent.space, sent.dictionary)
    assert form.guarantee == sent.guarantee


@st.composite
def rows_of_words(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    words = draw(st.one_of(st.integers(2, 30), st.integers(2, 10**6), st.just(2**32 - 1)))
    m = draw(st.integers(1, min(words - 1, 8)))
    ids = st.sets(st.integers(0, words - 1), min_size=m, max_size=m).map(sorted)
    return words, draw(st.lists(ids, min_size=1, max_size=20))


SPACES = st.fixed_dictionaries(
    {
        "descriptor": st.text("abc xyz-09", min_size=1, max_size=32),
        "normalization": st.sampled_from(["L2", "L1_ROOT"]),
        "dim": st.integers(2, 4096),
        "codebook": st.sampled_from(["", "0f" * 32]),
        "dither_steps": st.sampled_from([0.0, 0.5, 64.0]),
    }
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    rows_of_words(),
    st.one_of(st.floats(0, 20), st.just(math.inf)),
    SPACES,
    st.binary(min_size=32, max_size=32).filter(any),
    st.booleans(),
    st.booleans(),
)
def test_all_words_come_back_exactly(
    rows: tuple[int, list[list[int]]], epsilon: float, space: dict, dictionary: bytes, with_lines: bool, gravity: bool
) -> None:
    """Inverse pair both ways: decoding gives the same fields, and encoding them the same bytes."""
    form = Subsets(
        ids=np.array(rows[1], dtype=np.uint32),
        mechanism=SubsetMechanism(dictionary_size=rows[0], epsilon=epsilon, m=len(rows[1][0])),
        space=Space(**space),
        dictionary=dictionary.hex(),
        releasable=True,
    )
    sent = word_line_upload(form, gravity=gravity) if with_lines else word_upload(form)
    message = encode(sent)
    got = decode(message)
    assert type(got) is type(sent) and got.camera == sent.camera
    assert_same(got.form, form)
    if isinstance(got, LineUpload) and isinstance(sent, LineUpload):
        np.testing.assert_array_equal(got.lines.coefficients, sent.lines.coefficients)
        np.testing.assert_array_equal(got.lines.aligned, sent.lines.aligned)
        assert (got.lines.gravity is None) == (not gravity)
    elif isinstance(got, Upload) and isinstance(sent, Upload):
        np.testing.assert_array_equal(got.keypoints, sent.keypoints)
    assert encode(got) == message
    assert encode(sent, dtype="float32") == message  # words have no precision


# Three features of two out of ten words at (1, 2), (3, 4), (5, 6), put together by hand from docs/reference/wire.md.
# w: floor(4812 (20 - 2 + 1) / (20000 * 3)) = 1 has one binary digit. Ids 0 1 | 2 9 | 8 9 are values 0 0 | 2 6 | 8 0; their
# lowest bits are all 0, their quotients 0 0 1 3 4 0: bits 1 1 01 0001 | 00001 1, the first bit the lowest of its byte.
GOLDEN = (
    b"VEIL"
    + bytes([1, 3, 0, 1, 0b0101, 0])
    + struct.pack("<HHIHH", 640, 480, 3, 128, 2)
    + struct.pack("<f32s", 0, b"sift")
    + struct.pack("<IdI", 10, 1.5, 3)
    + bytes(32)
    + struct.pack("<4d", 500, 500, 320, 240)
    + struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    + bytes.fromhex(DICTIONARY)
    + bytes([0b000000, 0b10001011, 0b110000])
)


def test_a_message_put_together_by_hand() -> None:
    form = Subsets(
        ids=np.array([[0, 1], [2, 9], [8, 9]], dtype=np.uint32),
        mechanism=SubsetMechanism(dictionary_size=10, epsilon=1.5, m=2),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        dictionary=DICTIONARY,
        releasable=True,
    )
    keypoints = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    assert encode(Upload(camera=camera(), keypoints=keypoints, form=form)) == sealed(GOLDEN)
    assert_same(decode(sealed(GOLDEN)).form, form)


def test_two_thousand_features_are_small() -> None:
    """2,000 features in words (K = 256,000, m = 2) take less than 12 kB, and less than 1.2 times their entropy.

    Positions and lines take what they take beside subspaces.
    """
    form = subsets(2000, 2, words=256_000)
    fixed = HEAD_BYTES + 4 * 8 + 32 + CHECKSUM_BYTES
    positions, lines = len(encode(word_upload(form))), len(encode(word_line_upload(form)))
    assert positions - fixed - 2000 * 8 < min(12_000, 1.2 * 2000 * form.mechanism.bits / 8)
    assert lines - positions == 24 + 2000 * 12 + 250 - 2000 * 8


def test_a_study_cannot_be_released() -> None:
    with pytest.raises(WireError, match="seeded study"):
        encode(word_upload(subsets(releasable=False)))
    hidden = word_line_upload()
    with pytest.raises(WireError, match="lines were drawn from a seeded study"):
        encode(replace(hidden, lines=replace(hidden.lines, releasable=False)))


def test_what_does_not_fit_is_refused_on_the_device() -> None:
    few = SubsetMechanism(dictionary_size=2**32, epsilon=1.0, m=1)
    many = SubsetMechanism(dictionary_size=1 << 17, epsilon=1.0, m=1 << 16)
    row = np.arange(1 << 16, dtype=np.uint32)[None]
    for form, text in (
        (subsets().take(np.arange(0)), "1 to 131072 features"),
        (replace(subsets(1), ids=row[:, :1], mechanism=few), "4294967295"),
        (replace(subsets(1), ids=row, mechanism=many), "65535 words a feature"),
    ):
        with pytest.raises(InputError, match=text):
            encode(word_upload(form))
    for dictionary in ("", "0" * 64, "F" * 64, "f" * 63, "my dictionary"):
        with pytest.raises(InputError, match="dictionary"):
            replace(subsets(), dictionary=dictionary)


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (6, b"\2", "precision"),
        (5, b"\5", "kind"),
        (5, b"\0", "kind"),
        (8, b"\x10", "flag"),
        (8, b"\4", "deviation of a focal length that is a guess"),
        (14, struct.pack("<I", 0), "1 to 131072"),
        (14, struct.pack("<I", (1 << 17) + 1), "1 to 131072"),
        (14, struct.pack("<I", 1 << 17), "cannot take"),
        (18, struct.pack("<H", 1), "dim must be"),
        (20, struct.pack("<H", 0), "m must be between"),
        (20, struct.pack("<H", 1000), "m must be between"),
        (20, struct.pack("<H", 999), "cannot take"),
        (58, struct.pack("<I", 0), "words must be at least 2"),
        (58, struct.pack("<I", 2), "m must be between"),
        (58, struct.pack("<I", 3), "cannot take"),
        (62, struct.pack("<d", math.nan), "epsilon must be >= 0"),
        (62, struct.pack("<d", -math.nan), "epsilon must be >= 0, got nan"),
        (62, struct.pack("<d", -1.0), "negative epsilon"),
        (62, struct.pack("<d", -0.0), "negative epsilon"),
        (62, struct.pack("<d", -math.inf), "negative epsilon"),
        (62, struct.pack("<d", 60.0), "rounds to 1"),
        (62, struct.pack("<d", 1e300), "rounds to 1"),  # whose exponential has more digits than there is memory
        (70, struct.pack("<I", 0), "cannot take"),
        (70, struct.pack("<I", 2**32 - 1), "cannot take"),
        (74, b"\1", ""),
        (HEAD_BYTES + 4 * 8 + 5 * 8, bytes(32), "dictionary must be the SHA-256"),
    ],
)
def test_each_impossible_field_is_refused(offset: int, value: bytes, text: str) -> None:
    """Each impossible field behind a good checksum is refused with its reason; any hash is possible as a codebook."""
    message = encode(word_upload())
    if not text:
        decode(changed(message, offset, value))
        return
    with pytest.raises(WireError, match=text):
        decode(changed(message, offset, value))


def test_infinite_epsilon_travels_and_promises_nothing() -> None:
    got = words_of(decode(encode(word_upload(subsets(epsilon=math.inf)))))
    assert math.isinf(got.mechanism.epsilon) and "not privacy" in got.guarantee.reason  # type: ignore[union-attr]


def test_zero_has_one_sign() -> None:
    """An epsilon of minus zero is refused: it equals zero, and would give a second message of the same form."""
    assert encode(word_upload(subsets(epsilon=-0.0))) == encode(word_upload(subsets(epsilon=0.0)))


def test_gravity_that_is_not_known_is_zero_to_the_bit() -> None:
    message = encode(word_line_upload(gravity=False))
    for value in (1.0, -0.0):
        with pytest.raises(WireError, match="gravity is given"):
            decode(changed(message, HEAD_BYTES + 4 * 8, struct.pack("<d", value)))


def test_kinds_are_not_taken_for_each_other() -> None:
    """Words declared as subspaces, or lines as positions, are refused: the lengths do not fit, whatever the precision."""
    for sent in (word_upload(), word_line_upload()):
        message = encode(sent)
        for kind in {1, 2, 3, 4} - {message[5]}:
            for item_bytes in (0, 2, 4):
                with pytest.raises(WireError):
                    decode(changed(message, 5, bytes([kind, item_bytes])))


def survives(message: bytes) -> bool:
    """Whether a message decodes and encodes to the same bytes (True) or raises WireError (False); else the test fails."""
    try:
        got = decode(message)
    except WireError as error:
        assert str(error)
        return False
    assert encode(got) == message
    assert (words_of(got).ids < words_of(got).mechanism.dictionary_size).all()
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_ten_thousand_hostile_messages() -> None:
    """Truncated, flipped, grown, resealed and random messages give WireError, or are as `encode` would have written them."""
    random = generator("fuzz words")
    good = [encode(word_upload()), encode(word_upload(subsets(3, 1, words=7)))]
    good += [encode(word_line_upload(subsets(9, 3, words=300))), encode(word_line_upload(gravity=False))]
    assert all(survives(message) for message in good)
    for message in good:
        for length in range(len(message)):
            assert not survives(message[:length])
        for bit in range(8 * len(message)):
            flipped = bytearray(message)
            flipped[bit // 8] ^= 1 << bit % 8
            assert not survives(bytes(flipped))
    accepted = 0
    for case in range(FUZZ_CASES):
        body = bytearray(good[case % 4][:-CHECKSUM_BYTES])
        for _ in range(int(random.integers(1, 6))):
            body[int(random.integers(len(body)))] = int(random.integers(256))
        if case % 10 == 1:
            body += random.bytes(int(random.integers(1, 40)))
        accepted += survives(sealed(bytes(body)))
    assert accepted > 50  # harmless changes of numbers do pass: the checks behind the checksum were reached


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("make", [word_upload, word_line_upload])
def test_every_bit_behind_the_checksum(make) -> None:
    """A message with any single bit flipped, and resealed, is refused, or decodes and encodes to the same bytes."""
    message = encode(make(subsets(7, 3, words=1000)))
    outcomes = [
        survives(changed(message, bit // 8, bytes([message[bit // 8] ^ 1 << bit % 8])))
        for bit in range(8 * (len(message) - CHECKSUM_BYTES))
    ]
    assert 0.2 < np.mean(outcomes) < 0.95


@pytest.mark.slow
def test_memory_is_bounded_by_the_message() -> None:
    """Memory for headers that ask for gigabytes with few bytes behind them, and for honest messages of any density."""
    message = encode(word_upload())
    for count, m, words in ((1 << 17, 65535, 2**32 - 1), (1 << 17, 2, 1000), (5, 65535, 65536), (5, 2, 2**32 - 1)):
        hostile = changed(message, 14, struct.pack("<I", count))
        hostile = changed(hostile, 20, struct.pack("<H", m))
        for length in (0, len(message), packed_sizes(count, m, words)[0] % 2**32):
            own = OWN.pack(words, 5.0, length)
            assert _peak(changed(hostile, 58, own)) < 1 << 18
    for count, m, words in ((20_000, 2, 256_000), (3000, 64, 256_000), (500, 1000, 2000), (40, 60_000, 60_001)):
        honest = encode(word_upload(subsets(count, m, words=words)))
        # Of each id four bytes, and one where their order is checked; of each position eight; and a few blocks.
        assert _peak(honest) < 5 * count * m + 16 * count + (1 << 21)


def test_more_ids_than_any_release_has_are_refused() -> None:
    """At K = m + 1 an id takes one bit of a message and four bytes of memory: 7.5 MB would become 240 MB and more."""
    message = encode(word_upload())
    count, m, words = 1000, 60_000, 60_001
    length = packed_sizes(count, m, words)[0]
    body = bytearray(message[: -CHECKSUM_BYTES - len(words_payload(message))])
    struct.pack_into("<I", body, 14, count)
    struct.pack_into("<H", body, 20, m)
    body[58 : 58 + OWN.size] = OWN.pack(words, 5.0, length)
    body += bytes(8 * (count - 5)) + b"\x0f" * 32 + b"\xff" * length
    with pytest.raises(WireError, match="at most 4194304 words"):
        decode(sealed(bytes(body)))
    assert _peak(sealed(bytes(body))) < 1 << 18
    with pytest.raises(InputError, match="at most 4194304 words"):
        encode(word_upload(subsets(70, 60_000, words=60_001)))


def words_payload(message: bytes) -> bytes:
    """Bytes of the dictionary and the ids in a message with five positions and a camera of four parameters."""
    return message[HEAD_BYTES + 32 + 40 : -CHECKSUM_BYTES]


def _peak(message: bytes) -> int:
    tracemalloc.start()
    try:
        decode(message)
    except VeilError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_a_camera_of_any_model_carries_words() -> None:
    """Inverse pair for every camera model: words begin after the parameters, of which models have 3 to 12."""
    for model in ("SIMPLE_PINHOLE", "FULL_OPENCV"):
        sent = replace(lens(model), focal=GUESS)
        got = decode(encode(replace(word_upload(), camera=sent)))
        assert got.camera == sent
        assert_same(got.form, words_of(word_upload()))

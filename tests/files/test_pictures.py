"""Photographs as cameras and tools write them: every mode, 16 bits, EXIF that lies, and files that are none."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, TiffImagePlugin

from veil.device.photographs import with_camera
from veil.errors import FileFormatError, InputError, VeilWarning
from veil.files.photographs import kinds, pictures
from veil.files.photographs.masks import read_mask
from veil.files.photographs.pictures import (
    SUFFIXES,
    find_pictures,
    named_pictures,
    read_picture,
    read_rgb,
    stored_size,
    upright_size,
)
from veil.geometry.camera import FROM_EXIF, GUESS, Camera, undistorted
from worlds import generator
from worlds.edges import flipped, outcome, truncated

COLORS = generator("colors").integers(0, 256, (24, 40, 3)).astype(np.uint8)
GRAY = COLORS[:, :, 0]


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def test_gray_modes_keep_their_values(tmp_path: Path) -> None:
    """Second method: the arrays that were written, not Pillow's conversion of them."""
    gray = np.repeat(GRAY[:, :, None], 3, axis=2)
    bits = np.repeat(np.where(GRAY > 99, 255, 0).astype(np.uint8)[:, :, None], 3, axis=2)
    opaque = np.full_like(GRAY, 255)
    for name, image, expected in (
        ("l.png", Image.fromarray(GRAY), gray),
        ("1.png", Image.fromarray(GRAY > 99), bits),
        ("la.png", Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(opaque)]), gray),
        ("16.png", Image.fromarray(GRAY.astype(np.uint16) * 257), gray),
        ("16.tif", Image.fromarray(GRAY.astype(np.uint16) * 257), gray),
        ("32.tif", Image.fromarray(GRAY.astype(np.int32) * 257), gray),
        (
            "f.tif",
            Image.fromarray(np.append(GRAY, GRAY * 0 + 255, axis=0).astype(np.float32)),
            np.append(gray, gray * 0 + 255, 0),
        ),
        ("rgb.png", Image.fromarray(COLORS), COLORS),
        ("rgb.ppm", Image.fromarray(COLORS), COLORS),
        ("rgb.bmp", Image.fromarray(COLORS), COLORS),
    ):
        got = read_rgb(saved(tmp_path / name, image))
        assert got.dtype == np.uint8, name
        np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("top", [1, 255, 1023, 4095, 16383, 65535, 10_000_000])
def test_wide_pixels_are_scaled_by_the_smallest_usual_range(tmp_path: Path, top: int) -> None:
    """Second method: exact rational rounding of 255 v / top; dark pictures stay dark within their range."""
    ramp = np.linspace(0, 1, 960).reshape(24, 40) * top
    values = ramp.astype(np.float32) if top == 1 else np.round(ramp).astype(np.int32)
    got = read_rgb(saved(tmp_path / "w.tif", Image.fromarray(values)))[:, :, 0]
    np.testing.assert_array_equal(got, np.floor(values.astype(np.float64) * 255 / top + 0.5).astype(np.uint8))
    assert (got.min(), got.max()) == (0, 255)


def test_transparency_becomes_white(tmp_path: Path) -> None:
    """In RGBA, LA, and a palette with a transparent color: a pixel that shows nothing must not show what lies below."""
    alpha = np.where(GRAY > 99, 255, 0).astype(np.uint8)
    white = np.full_like(COLORS, 255)
    shown = np.where(alpha[:, :, None] == 255, COLORS, white)
    rgba = Image.fromarray(np.dstack([COLORS, alpha]))
    np.testing.assert_array_equal(read_rgb(saved(tmp_path / "rgba.png", rgba)), shown)
    la = Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(alpha)])
    np.testing.assert_array_equal(
        read_rgb(saved(tmp_path / "la.png", la))[:, :, 0], np.where(alpha == 255, GRAY, 255).astype(np.uint8)
    )
    indices = (GRAY // 64).astype(np.uint8)
    palette = Image.fromarray(indices).convert("P")
    colors = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120]
    palette.putpalette(colors)
    expected = np.array(colors, np.uint8).reshape(4, 3)[indices]
    np.testing.assert_array_equal(read_rgb(saved(tmp_path / "p.png", palette)), expected)
    expected[indices == 2] = 255
    np.testing.assert_array_equal(read_rgb(saved(tmp_path / "pt.png", palette, transparency=2)), expected)


def test_print_colors_are_read(tmp_path: Path) -> None:
    """CMYK without a profile: R = 255 - C - K, within Pillow's rounding."""
    cmyk = Image.fromarray(np.dstack([255 - COLORS, np.zeros_like(GRAY)]), mode="CMYK")
    got = read_rgb(saved(tmp_path / "c.tif", cmyk))
    assert np.abs(got.astype(int) - COLORS).max() <= 1


def test_not_a_number_is_no_pixel(tmp_path: Path) -> None:
    values = GRAY.astype(np.float32)
    values[3, 3] = np.nan
    with pytest.raises(FileFormatError, match="NaN or infinite"):
        read_rgb(saved(tmp_path / "f.tif", Image.fromarray(values)))


def test_the_digest_is_of_pixels_not_of_the_file(tmp_path: Path) -> None:
    """Other EXIF, another lossless format: the same photograph to the ledger. One pixel: another one."""
    exif = Image.Exif()
    exif[ExifTags.Base.Software] = "elsewhere"
    exif[ExifTags.Base.DateTime] = "2024:01:01 00:00:00"
    plain = read_picture(saved(tmp_path / "a.png", Image.fromarray(COLORS)))
    tagged = read_picture(saved(tmp_path / "b.png", Image.fromarray(COLORS), exif=exif))
    tiff = read_picture(saved(tmp_path / "c.tif", Image.fromarray(COLORS)))
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
    assert plain.digest == tagged.digest == tiff.digest
    changed = COLORS.copy()
    changed[5, 5, 2] ^= 1
    assert read_picture(saved(tmp_path / "d.png", Image.fromarray(changed))).digest != plain.digest
    # Reshaped pixels are other pixels, though their bytes are equal.
    wide = read_picture(saved(tmp_path / "e.png", Image.fromarray(COLORS.reshape(20, 48, 3))))
    assert wide.digest != plain.digest


def exif_with(**tags: object) -> Image.Exif:
    exif = Image.Exif()
    folder = exif.get_ifd(ExifTags.IFD.Exif)
    for name, value in tags.items():
        folder[ExifTags.Base[name]] = value
    return exif


def test_focal_length_from_the_file(tmp_path: Path) -> None:
    """Golden: f = f35 / hypot(36, 24) * diagonal; and f_mm * (pixels per cm) / 10, halved as the picture is."""
    diagonal = np.hypot(40, 24)
    camera = read_picture(saved(tmp_path / "a.jpg", Image.fromarray(COLORS), exif=exif_with(FocalLengthIn35mmFilm=50))).camera
    assert camera.focal_is_known
    assert camera.focal_px == pytest.approx(50 / 43.26661530556787 * diagonal)
    assert camera.params[1:] == (20.0, 12.0, 0.0)
    rational = TiffImagePlugin.IFDRational
    plane = {
        "FocalLength": rational(4),
        "FocalPlaneXResolution": rational(200),
        "FocalPlaneYResolution": rational(200),
        "FocalPlaneResolutionUnit": 3,
        "ExifImageWidth": 80,
    }
    camera = read_picture(saved(tmp_path / "b.jpg", Image.fromarray(COLORS), exif=exif_with(**plane))).camera
    assert camera.focal_px == pytest.approx(4 * 200 / 10 * 40 / 80)


def test_a_picture_can_stay_as_it_is_stored(tmp_path: Path) -> None:
    """Planted truth: a dark left half, with an orientation that turns the upright picture by 90 degrees, as phones write it."""
    pixels = np.full((48, 64, 3), 200, np.uint8)
    pixels[:, :32] = 10
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    upright, stored = read_picture(tmp_path / "a.png"), read_picture(tmp_path / "a.png", as_stored=True)
    np.testing.assert_array_equal(stored.gray, pixels[..., 0])
    assert stored_size(tmp_path / "a.png") == (stored.camera.width_px, stored.camera.height_px) == (64, 48)
    assert upright_size(tmp_path / "a.png") == (upright.camera.width_px, upright.camera.height_px) == (48, 64)
    np.testing.assert_array_equal(upright.gray, np.rot90(pixels[..., 0], -1))


def test_focal_length_turns_with_the_picture(tmp_path: Path) -> None:
    """A portrait shot is the landscape one turned: the same focal length, sides exchanged."""
    exif = exif_with(FocalLengthIn35mmFilm=28)
    lying = read_picture(saved(tmp_path / "a.jpg", Image.fromarray(COLORS), exif=exif)).camera
    exif[ExifTags.Base.Orientation] = 6
    standing = read_picture(saved(tmp_path / "b.jpg", Image.fromarray(COLORS), exif=exif)).camera
    assert (standing.width_px, standing.height_px) == (lying.height_px, lying.width_px)
    assert standing.focal_px == pytest.approx(lying.focal_px)


def test_absurd_metadata_is_a_guess(tmp_path: Path) -> None:
    rational = TiffImagePlugin.IFDRational
    for tags in (
        {},
        {"FocalLengthIn35mmFilm": 0},
        {"FocalLengthIn35mmFilm": 60000},
        {"FocalLength": rational(1, 0), "FocalPlaneXResolution": rational(1, 0)},
        {"FocalLength": rational(4), "FocalPlaneXResolution": rational(200), "FocalPlaneResolutionUnit": 9},
        {"FocalLength": rational(4)},
    ):
        camera = read_picture(saved(tmp_path / "a.jpg", Image.fromarray(COLORS), exif=exif_with(**tags))).camera
        assert not camera.focal_is_known
        assert camera.focal_px == pytest.approx(1.2 * 40)


@pytest.mark.parametrize("sides", [(686, 1024), (1024, 686)], ids=["turned", "as the sensor lies"])
def test_the_longer_side_is_the_same_where_a_program_turned_the_pixels(sides: tuple[int, int], tmp_path: Path) -> None:
    """Oracle: planted resolution of a camera of 1,288.6 px; the sides are listed turned, or as the sensor lies."""
    rational, focal_mm, focal_px = TiffImagePlugin.IFDRational, 35, 1288.6
    per_inch = rational(round(focal_px * 25.4 / focal_mm * 1000), 1000)
    tags = {"FocalLength": rational(focal_mm), "FocalPlaneXResolution": per_inch, "FocalPlaneYResolution": per_inch}
    listed = {"FocalPlaneResolutionUnit": 2, "ExifImageWidth": sides[0], "ExifImageHeight": sides[1]}
    path = saved(tmp_path / "a.jpg", Image.new("RGB", (686, 1024)), exif=exif_with(**tags, **listed))
    assert read_picture(path).camera.focal_px == pytest.approx(focal_px, rel=1e-4)
    half = saved(tmp_path / "b.jpg", Image.new("RGB", (343, 512)), exif=exif_with(**tags, **listed))
    assert read_picture(half).camera.focal_px == pytest.approx(focal_px / 2, rel=1e-4)


GPANO = b'<x xmlns:GPano="http://ns.google.com/photos/1.0/panorama/" GPano:ProjectionType="equirectangular"/>'


@pytest.mark.parametrize(
    ("size", "more", "options"),
    [
        ((500, 100), {}, {}),
        ((100, 100), {}, {}),
        ((200, 100), {}, {"xmp": GPANO}),
        ((160, 90), {"ExifImageWidth": 4000, "ExifImageHeight": 3000}, {}),
        ((120, 90), {"DigitalZoomRatio": TiffImagePlugin.IFDRational(2)}, {}),
    ],
    ids=["panorama", "square", "equirectangular", "other shape", "digital zoom"],
)
def test_metadata_of_another_picture_is_a_guess(
    size: tuple[int, int], more: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """Oracle: the statement; the twin, a whole picture of the same tag, has a focal length of EXIF."""
    exif = exif_with(FocalLengthIn35mmFilm=26, **more)
    camera = read_picture(saved(tmp_path / "a.jpg", Image.new("RGB", size), exif=exif, **options)).camera
    assert camera.focal == GUESS and camera.focal_px == pytest.approx(1.2 * max(size))
    twin = saved(tmp_path / "b.jpg", Image.new("RGB", (160, 120)), exif=exif_with(FocalLengthIn35mmFilm=26))
    assert read_picture(twin).camera.focal == FROM_EXIF


def test_a_given_camera_must_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(COLORS))
    fits = Camera(model="SIMPLE_PINHOLE", width_px=40, height_px=24, params=(50.0, 20.0, 12.0))
    assert read_picture(path, camera=fits).camera == fits
    turned = Camera(model="SIMPLE_PINHOLE", width_px=24, height_px=40, params=(50.0, 12.0, 20.0))
    with pytest.raises(InputError, match=r"a\.png.*24x40 px but the upright image has 40x24"):
        read_picture(path, camera=turned)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["JPEG", "PNG", "TIFF", "WEBP", "GIF", "BMP", "PPM"])
def test_damaged_files_raise_only_veils_errors(tmp_path: Path, name: str) -> None:
    """Headers and EXIF are where decoders stumble, so most flips go there."""
    buffer = io.BytesIO()
    exif = exif_with(FocalLengthIn35mmFilm=28, FocalPlaneResolutionUnit=3)
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(COLORS).save(buffer, name, **({} if name in ("GIF", "BMP", "PPM") else {"exif": exif}))
    data, path = buffer.getvalue(), tmp_path / "damaged"
    random = generator(f"damaged {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on EXIF and size
        for bad in (*truncated(data, 30), *(head + data[300:] for head in flipped(random, data[:300], 150))):
            path.write_bytes(bad)
            error = outcome(lambda: read_picture(path))
            assert error is None or str(path) in str(error)


def test_a_picture_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    """A header that claims 60000 x 60000 pixels: refused before they are allocated."""
    path = tmp_path / "bomb.ppm"
    path.write_bytes(b"P6\n60000 60000\n255\n" + bytes(100))
    with pytest.raises(FileFormatError, match="60000x60000 px, which take gigabytes"):
        read_rgb(path)


@pytest.mark.parametrize("reading", [read_rgb, upright_size, stored_size, lambda path: read_mask(path, 600, 600)])
def test_whoever_opens_a_picture_of_too_many_pixels_refuses_it(reading: Callable[[Path], object], tmp_path: Path) -> None:
    """A header of 600 megapixels, in silence: Pillow warns of it, or raises an error that is none of a file's."""
    path = tmp_path / "bomb.ppm"
    path.write_bytes(b"P6\n25000 24000\n255\n" + bytes(100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FileFormatError, match="25000x24000 px, which take gigabytes"):
            reading(path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_has_the_sizes_and_pixels_of_a_png(orientation: int, tmp_path: Path) -> None:
    """Second method: the same stored pixels and orientation as PNG. Pillow turns TIFF itself, in its size, too."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    for values, name in ((COLORS, "rgb"), (GRAY.astype(np.uint16) * 257, "16")):
        png, tiff = (saved(tmp_path / f"{name}.{kind}", Image.fromarray(values), exif=exif) for kind in ("png", "tif"))
        assert stored_size(tiff) == stored_size(png) == (40, 24) and upright_size(tiff) == upright_size(png)
        np.testing.assert_array_equal(read_rgb(tiff), read_rgb(png))
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("error")
            patch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # Pillow asks for its limit again when it loads a TIFF
            stored = read_picture(tiff, as_stored=True)
        np.testing.assert_array_equal(stored.gray, read_picture(png, as_stored=True).gray)
        assert (stored.camera.width_px, stored.camera.height_px) == (40, 24)


def test_photographs_are_found_sorted_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "b/1.png", "a.webp", "notes.txt", "b/.hidden"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    (tmp_path / "photos" / "folder.jpg").mkdir()
    names = [path.relative_to(tmp_path / "photos").as_posix() for path in find_pictures(tmp_path / "photos")]
    assert names == ["a.webp", "b/1.png", "b/2.JPG"]
    assert find_pictures(tmp_path / "photos" / "notes.txt") == [tmp_path / "photos" / "notes.txt"]  # a file is believed
    for path, words in ((tmp_path / "nowhere", "there is no"), (tmp_path / "photos" / "folder.jpg", "looked for .*jpeg")):
        with pytest.raises(InputError, match=words):
            find_pictures(path)
    assert {".jpg", ".png", ".tif"} <= SUFFIXES


def packed_tiff(path: Path, values: np.ndarray, **tags: int) -> Path:
    """A gray TIFF of 12 bits a pixel, two pixels in three bytes, as instruments write it (TIFF 6.0, by hand)."""
    height, width = values.shape
    pairs = values.reshape(-1, 2).astype(np.uint32)
    data = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1).astype(np.uint8)
    entries = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: data.size}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    path.write_bytes(
        struct.pack("<2sHI", b"II", 42, 8 + data.size) + data.tobytes() + struct.pack("<H", len(entries)) + directory + bytes(4)
    )
    return path


def test_twelve_bits_a_pixel_keep_their_range_in_a_dark_picture(tmp_path: Path) -> None:
    """Planted truth: 255 v / 4095, though no pixel is brighter than 700: the file says how many bits there are."""
    values = np.linspace(0, 700, 960).round().astype(np.uint16).reshape(24, 40)
    got = read_rgb(packed_tiff(tmp_path / "p.tif", values))[:, :, 0]
    np.testing.assert_array_equal(got, np.floor(values.astype(np.float64) * 255 / 4095 + 0.5).astype(np.uint8))


def test_the_largest_value_that_the_file_names_counts(tmp_path: Path) -> None:
    """Planted truth: MaxSampleValue 4095 in a 16-bit file whose pixels stay below 1023."""
    values = np.linspace(0, 700, 960).round().astype(np.uint16).reshape(24, 40)
    path = saved(tmp_path / "m.tif", Image.fromarray(values), tiffinfo={281: 4095})
    expected = np.floor(values.astype(np.float64) * 255 / 4095 + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(read_rgb(path)[:, :, 0], expected)


def colors_in_16_bits(path: Path, values: np.ndarray) -> Path:
    """A PNG of 16 bits a channel (ISO/IEC 15948, by hand): Pillow does not write one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def test_twelve_bits_in_sixteen_bit_colors_are_refused(tmp_path: Path) -> None:
    """Pillow keeps the upper eight of 16 bits: four of twelve would be left, and a picture that is all but black."""
    whole = read_rgb(colors_in_16_bits(tmp_path / "w.png", COLORS.astype(np.uint16) * 257))
    assert np.abs(whole.astype(int) - COLORS).max() <= 1
    for bits in (10, 12, 14):
        path = colors_in_16_bits(tmp_path / f"{bits}.png", COLORS.astype(np.uint16) << (bits - 8))
        with pytest.raises(FileFormatError, match="use 14 bits at most"):
            read_rgb(path)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_photograph_is_shrunk_with_its_camera(
    tmp_path: Path, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted truth: rays of pixels stay as they were, by EXIF (both ways), K.txt and a camera that is given.

    Pillow, which warns of half as many pixels, says nothing.
    """
    large = Image.fromarray(COLORS).resize((400, 240))
    tags = exif_with(FocalLengthIn35mmFilm=50), exif_with(FocalLength=TiffImagePlugin.IFDRational(35))
    plane = tags[1].get_ifd(ExifTags.IFD.Exif)
    plane.update({0xA20E: TiffImagePlugin.IFDRational(200), 0xA20F: TiffImagePlugin.IFDRational(200), 0xA210: 2})
    paths = []
    for number, exif in enumerate(tags):
        exif[ExifTags.Base.Orientation] = orientation
        paths.append(saved(tmp_path / f"{number}.jpg", large, exif=exif, quality=95))
    whole = [read_picture(path) for path in paths]
    size = whole[0].camera.width_px, whole[0].camera.height_px
    given = f"OPENCV,300,310,{size[0] / 2 + 5},{size[1] / 2 - 3},-0.1,0.02,0.001,0.002"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30_000)
    monkeypatch.setattr(pictures, "MAX_PIXELS", 60_000)
    for path, before in zip(paths, whole, strict=True):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            after = read_picture(path)
        assert [item.category for item in warned] == [VeilWarning]
        assert f"shrunk from {size[0]}x{size[1]} px to" in str(warned[0].message)
        height, width = after.gray.shape
        assert 59_000 < width * height <= 60_000 and (after.camera.width_px, after.camera.height_px) == (width, height)
        assert before.camera.focal_is_known and after.camera.focal_is_known
        assert after.camera.focal_px / width == pytest.approx(before.camera.focal_px / size[0], rel=0.01)
        factor = np.array([width, height]) / size
        seen = np.array([[10.0, 20.0], [100.0, 200.0], [222.0, 111.0]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VeilWarning)
            by_camera = read_picture(path, camera=Camera.parse(given, *size)).camera
        assert by_camera == with_camera(after, given, path).camera
        rays, _ = undistorted(Camera.parse(given, *size), seen)
        np.testing.assert_allclose(undistorted(by_camera, seen * factor)[0], rays, atol=1e-9)
    (tmp_path / "K.txt").write_text(f"300 0 {size[0] / 2}\n0 310 {size[1] / 2}\n0 0 1\n")
    by_matrix = with_camera(after, None, paths[0]).camera
    assert by_matrix.params == pytest.approx((300 * factor[0], 310 * factor[1], width / 2, height / 2))


def test_files_that_are_no_photographs_are_named_by_their_kind(tmp_path: Path) -> None:
    """Golden: first bytes as each format's specification gives them, whatever the suffix; a RAW file by its suffix alone.

    Pillow reads a DNG, which is a TIFF: its thumbnail would pass for the photograph.
    """
    tiff = saved(tmp_path / "t.tif", Image.fromarray(COLORS)).read_bytes()
    for name, data, words in (
        ("a.jpg", b"\0\0\0\x18ftypmp42\0\0\0\0", "video"),
        ("a.mov", b"\0\0\0\x14ftypqt  \0\0\0\0", "video"),
        ("a.heic", b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        ("a.dng", tiff, "RAW of a camera"),
        ("a.CR2", tiff, "RAW of a camera"),
        ("a.bin", b"FUJIFILMCCD-RAW 0201", "RAW of a camera"),
        ("b.jpg", b"<!DOCTYPE html><html>", "web page"),
        ("c.jpg", b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
        ("a.pdf", b"%PDF-1.7", "PDF"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileFormatError, match=f"{name} is no photograph that can be read here: {words}") as raised:
            read_picture(tmp_path / name)
        assert ("convert it" in str(raised.value)) == (words in ("HEIC", "RAW of a camera")), "what is no picture becomes none"
    (tmp_path / "d.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    with pytest.raises(FileFormatError, match="cannot be decoded as a photograph"):
        read_picture(tmp_path / "d.jpg")


def test_what_is_passed_over_in_a_folder_is_counted_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumeration: every file is a photograph, a file that is read beside one, or counted."""
    monkeypatch.setattr(kinds, "readable", lambda: frozenset(kinds.SUFFIXES))
    folder = tmp_path / "photos"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.jpg", "deep/b.png"):
        saved(folder / name, Image.fromarray(COLORS))
    for name in ("1.HEIC", "deep/2.heic", "3.avif", "4.dng", "5.mp4", "deep/6.txt", "notes", "K.txt"):
        (folder / name).touch()
    (folder / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (folder / "elsewhere").symlink_to(tmp_path)
    with pytest.warns(VeilWarning) as warned:
        assert [name for name, _ in named_pictures([folder])] == ["a.jpg", "deep/b.png"]
    counted = (
        "1 AVIF, 2 HEIC, 1 RAW of a camera, 1 broken link, 1 link to a folder, 1 other (.txt), 1 other (no suffix), 1 video"
    )
    assert str(warned[0].message).startswith(f"passed over 9 files in {folder}: {counted}; install pillow-heif")
    for name in ("a.jpg", "deep/b.png"):
        (folder / name).unlink()
    with pytest.raises(InputError, match=r"no photographs in .*; it has 1 AVIF, 2 HEIC.*; looked for .*install pillow-heif"):
        named_pictures([folder])


@pytest.mark.parametrize(("suffix", "orientation"), [(".avif", 1), (".avif", 6), (".heic", 1)])
def test_photographs_of_phones_are_read_where_the_decoder_is_there(tmp_path: Path, suffix: str, orientation: int) -> None:
    """Planted truth: the pixels that were written, turned upright once."""
    if suffix not in kinds.readable():
        pytest.skip(f"nothing here reads {suffix}")
    image = Image.fromarray(COLORS).resize((160, 96), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    path = saved(tmp_path / f"a{suffix}", image, exif=exif, quality=95)
    expected = np.asarray(image if orientation == 1 else image.transpose(Image.Transpose.ROTATE_270)).astype(int)
    assert np.abs(read_rgb(path).astype(int) - expected).mean() < 20
    assert find_pictures(tmp_path) == [path]

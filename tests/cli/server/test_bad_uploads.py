"""One bad upload takes nothing from the others: it is skipped and named, and --strict refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.cli.common import printable
from veil.device.doors import load_uploads
from veil.errors import InputError, VeilError, WireError
from veil.places.uploads import comparable, decoded
from veil.space import Space
from veil.wire import Message, Upload, encode
from worlds import camera, generator, sift_like, subspaces, unit
from worlds.word_uploads import word_line_upload, word_upload


def honest(name: str, *, dim: int = 128) -> Upload:
    """A valid message of subspaces with positions."""
    random = generator(f"honest {name}")
    space = Space(descriptor="sift", normalization="L2", dim=dim)
    form = subspaces(random, unit(sift_like(random, 30, dim)), 4, space)
    return Upload(camera=camera(), keypoints=random.uniform(0, 400, (30, 2)).astype(np.float32), form=form)


def put(folder: Path, name: str, message: Message | bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(message if isinstance(message, bytes) else encode(message))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five honest messages."""
    for index in range(5):
        put(tmp_path / "up", f"{index}.veil", honest(str(index)))
    return tmp_path / "up"


GOOD = encode(honest("good"))
BAD = {
    "zz.veil": (b"random bytes" * 50, "not a veil message"),
    "empty.veil": (b"", "truncated"),
    "cut.veil": (GOOD[:-7], "transfer it again"),
    "..veil": (GOOD, "cannot name an image"),
    "...veil": (GOOD, "cannot name an image"),
    " blank.veil": (GOOD, "cannot name an image"),
    "escape\x1b[31m.veil": (GOOD, "cannot name an image"),
    "not utf-8 \udcff.veil": (GOOD, "cannot name an image"),
    "replayed.veil": (encode(honest("0")), "the same message as 0.veil"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_skipped_with_its_reason(folder: Path, name: str) -> None:
    data, reason = BAD[name]
    put(folder, name, data)
    messages, skipped = decoded(folder, strict=False)
    assert sorted(messages) == ["0", "1", "2", "3", "4"]
    assert list(skipped) == [name] and reason in skipped[name]
    with pytest.raises(VeilError, match=reason):
        decoded(folder, strict=True)


def test_a_single_file_or_a_folder_of_nothing_else_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "bad", "zz.veil", b"junk" * 60)
    for path in (tmp_path / "bad" / "zz.veil", tmp_path / "bad"):
        with pytest.raises(WireError, match="not a veil message"):
            decoded(path, strict=False)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no"):
        decoded(tmp_path / "none", strict=False)


@pytest.mark.parametrize("other", ["words", "lines", "space"])
def test_a_message_of_another_kind_does_not_stop_a_map(folder: Path, other: str) -> None:
    """Among five of one kind it is left out; of two against five nobody can say which are wrong, and all stay."""
    kinds: dict[str, Message] = {"words": word_upload(), "lines": word_line_upload(), "space": honest("other", dim=64)}
    put(folder, "zz.veil", kinds[other])
    uploads = comparable(load_uploads(folder))
    assert (
        len(uploads.images) == 5
        and list(uploads.skipped) == ["zz.veil"]
        and "the others are subspaces" in uploads.skipped["zz.veil"]
    )
    assert len(comparable(load_uploads(folder), strict=True).images) == 6
    second = kinds[other]
    put(folder, "zy.veil", replace(second, camera=replace(camera(), params=(501.0, 500.0, 320.0, 240.0))))
    assert len(comparable(load_uploads(folder)).images) == 7


@pytest.mark.slow
def test_map_names_what_it_skipped(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command gets past the bad message to the images themselves, which here share nothing."""
    put(folder, "zz\x1b[2J.veil", b"junk" * 60)
    assert main(["map", str(folder), "-o", str(tmp_path / "map")]) == 1
    said = capsys.readouterr().err
    assert "skipped zz\\x1b[2J.veil:" in said and "no map" in said and "\x1b" not in said
    assert main(["map", str(folder), "-o", str(tmp_path / "map"), "--strict"]) == 1
    assert "no map" not in capsys.readouterr().err


def test_a_limit_that_is_none_is_refused_before_the_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: matching, which may take hours, fails at once; the message is about the option."""
    monkeypatch.setattr("veil.places.pairs.blocks.match_pairs", lambda *_, **__: pytest.fail("matched first"))
    for wrong in (("--max-seconds", "-1"), ("--max-seconds", "nan"), ("--ratio", "2")):
        assert main(["map", str(folder), "-o", str(tmp_path / "map"), *wrong]) == 1
        assert "matched first" not in (said := capsys.readouterr().err) and wrong[1] in said


def test_a_message_that_cannot_even_be_read_does_not_stop_a_map_from_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is called like a message; the key of the run, with which it is resumed, is made from the other messages."""
    for index in range(5):
        message = word_line_upload()
        put(
            tmp_path / "up",
            f"{index}.veil",
            replace(message, camera=replace(camera(), params=(500.0 + index, 500.0, 320.0, 240.0))),
        )
    (tmp_path / "up" / "zz.veil").mkdir()
    assert main(["map", str(tmp_path / "up"), "-o", str(tmp_path / "map")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("veil: skipped zz.veil: cannot read") and not said[-1].startswith("veil: cannot read"), said


def test_what_a_terminal_would_obey_is_escaped() -> None:
    """Escapes, carriage returns, direction marks and stray bytes of names; letters of any script stay."""
    assert printable("a\x1b[31mb\rc\u202ed\udcff\x7f\x9b") == "a\\x1b[31mb\\rc\\u202ed\\udcff\\x7f\\x9b"
    assert printable("Größe 漢字 é ok\n\tok") == "Größe 漢字 é ok\n\tok"

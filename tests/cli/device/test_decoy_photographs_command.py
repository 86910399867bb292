"""`veil privatize --decoys` takes a file of photographs' features, uses each once, and says how many it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.features import write_features
from worlds.decoy_photographs import photograph, photographs


def test_decoys_come_from_photographs_until_they_run_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command gives the same message; the third photograph finds two photographs left of the eight it needs."""
    own, others = tmp_path / "own.h5", tmp_path / "others.h5"
    write_features(own, [(f"own {number}.jpg", photograph(f"own {number}", 60)) for number in range(2)])
    write_features(others, [(f"other {number}.jpg", item) for number, item in enumerate(photographs(18))])
    command = ["privatize", str(own), "-o", str(tmp_path / "out"), "--for", "map", "--decoys", str(others)]
    assert main(command) == 0
    sent = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert main(command) == 0 and len(sent) == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == sent
    assert "bundled" not in capsys.readouterr().out
    third = tmp_path / "third.h5"
    write_features(third, [("third.jpg", photograph("third", 60))])
    assert main(["privatize", str(third), "-o", str(tmp_path / "out"), "--for", "map", "--decoys", str(others)]) != 0
    assert "needs 8 decoy photographs that no release used" in (told := capsys.readouterr().err)
    assert "of 2 unused ones 2 are so" in told
    assert (
        main(["privatize", str(third), "-o", str(tmp_path / "out"), "--for", "map", "--decoys", str(tmp_path / "nowhere.h5")])
        != 0
    )
    assert "there is no codebook" in capsys.readouterr().err


def test_decoy_photographs_of_one_place_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: one of ten shows a fifth of what another shows. Control: a twentieth, as chance gives."""
    own, others = tmp_path / "own.h5", tmp_path / "others.h5"
    write_features(own, [("own.jpg", photograph("own", 60))])
    command = ["privatize", str(own), "-o", str(tmp_path / "out"), "--for", "map", "--decoys", str(others)]
    for shared, refused in ((24, True), (6, False)):
        first, second, *rest = photographs(10)
        descriptors = second.descriptors.copy()
        descriptors[:shared] = first.descriptors[:shared]
        given = [first, replace(second, descriptors=descriptors), *rest]
        write_features(others, [(f"other {number}.jpg", item) for number, item in enumerate(given)])
        assert (main(command) != 0) is refused
        told = capsys.readouterr().err
        assert ("1 pairs of the 10 decoy photographs" in told and "(other 0.jpg and other 1.jpg)" in told) is refused

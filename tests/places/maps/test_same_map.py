"""The same map from the same images and seed, to the byte, however COLMAP's threads take turns."""

from __future__ import annotations

from pathlib import Path

from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, MapOptions, StageLimits
from veil.places.maps.colmap import Colmap
from veil.places.maps.options import pipeline_settings
from veil.places.maps.verification import Verification
from worlds import world

RUNS = 4


def test_a_request_has_one_answer(tmp_path: Path) -> None:
    """Four answers of the mapper to one request have the same bytes.

    All images but two are registered without points, which COLMAP does where points fail. That search takes its trials from
    all threads as they come: with two threads or more the answers differ.
    """
    place = world("the same map", noise_px=0.7)
    images = {
        name: MapImage(camera=place.camera, keypoints=place.keypoints[name], form=place.form(name)) for name in place.poses
    }
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
    with Colmap(StageLimits()) as colmap:
        verification = Verification(images, MapOptions(), tmp_path, colmap)
        assert verification.run(matches) is None
        answers = []
        for run in range(RUNS):
            output = tmp_path / f"run-{run}"
            output.mkdir()
            settings = pipeline_settings(set(images), images, MapOptions(), 1.0)
            request = {
                "do": "map",
                "database": str(verification.database),
                "output": str(output),
                "seed": 0,
                "constant_cameras": sorted(verification.constant_cameras),
                "options": {**settings, "structure_less_registration_only": True},
            }
            assert colmap.run(request) == {"models": 1}
            answers.append([path.read_bytes() for path in sorted(output.rglob("*.bin"))])
    assert _registered(tmp_path / "run-0/0") == set(images)
    assert all(answer == answers[0] for answer in answers)


def _registered(folder: Path) -> set[str]:
    from veil.colmap import pycolmap

    model = pycolmap.Reconstruction(folder)
    return {model.images[image_id].name for image_id in model.reg_image_ids()}

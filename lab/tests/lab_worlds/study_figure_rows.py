"""Planted rows of every study, from which its figure is drawn: as many curves and as long names as studies have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.matches.view_weights import ViewWeights
from veil.geometry.rigid import Rigid
from veil.trials.reconstruction_run import ErrorStatistics, Run
from veil_lab.report.attacks import draw_defenses, draw_inversions, draw_oracle, draw_position_attacks, draw_similarity
from veil_lab.report.curves import draw_accuracy, draw_descriptors
from veil_lab.report.localization import draw_curve, draw_localization, draw_maps
from veil_lab.report.queries import draw_forged, draw_queries
from veil_lab.report.tiles import draw_tiles
from veil_lab.report.view_ratios import draw_view_ratios
from veil_lab.studies.attacks.defenses import DefenseRow, Recovery, default_defenses
from veil_lab.studies.attacks.positions import ATTACKS, PositionTrial
from veil_lab.studies.localization.acceptance_counts import OBSERVATION_KINDS, QueryAnswer
from veil_lab.studies.localization.forged_answers import ForgedAnswer
from veil_lab.studies.localization.robustness import RobustnessTrial
from veil_lab.studies.localization.tile_localization import AgainstRaw, TileFormRow, TileRow, TileSetting
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, Setting
from veil_lab.studies.pictures.inversion import ORDER, InversionRow, Inverted
from veil_lab.training.view_fit import RatedCandidates
from worlds import generator

DIMS = (2, 4, 8, 16)


RANDOM = generator("figures")


def _matching(path: Path) -> None:
    def row(lifting: str, profile: str, m: int, distance: str, at: float) -> dict[str, Any]:
        mma = {str(t): min(1.0, at * (1 - 0.6**t)) for t in range(1, 11)}
        return {"lifting": lifting, "profile": profile, "m": m, "distance": distance, "mma": mma}

    liftings = ("random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid")
    rows = [row("none", "raw", 0, "point", 0.8)]
    rows += [row("sub-adversarial", "hardened", 4, distance, 0.7) for distance in ("p2s", "s2s")]
    for number, lifting in enumerate(liftings):
        for profile in ("paper", "real"):
            for m in DIMS:
                rows += [row(lifting, profile, m, distance, 0.72 - 0.05 * number - 0.01 * m) for distance in ("p2s", "s2s")]
    draw_accuracy(path, rows, title="SIFT, 30 pairs of 6 sequences, at most 1000 features of each image")


def _descriptors(path: Path) -> None:
    shares = {"sift": 0.7, "hardtfeat": 0.75, "hardnet": 0.78, "aliked-n16rot": 0.8, "xfeat": 0.6}
    forms = (
        ("raw", "point", 1.0),
        ("hardened", "p2s", 0.9),
        ("hardened", "s2s", 0.8),
        ("words", "r2w", 0.9),
        ("words", "w2w", 0.7),
    )
    rows = []
    for name, at in shares.items():
        for profile, distance, share in forms:
            mma = {str(t): at * share * (1 - 0.6**t) for t in range(1, 11)}
            rows.append({"descriptor": name, "profile": profile, "distance": distance, "mma": mma})
    draw_descriptors(path, rows, title="30 pairs of 6 sequences, 1000 features an image")


def _defenses(path: Path) -> None:
    rows = []
    for number, defense in enumerate(default_defenses()):
        share = 1 / (1 + number)
        recoveries = tuple(
            Recovery(attack=name, features=60, within=(share, share), upper=1.0, exact=share, certified=share)
            for name in ("lattice", "vertex", "database", "nearest, projected")
        )
        rows.append(DefenseRow(defense=defense, raw=0.6, p2s=0.55, s2s=0.4, recoveries=recoveries))
    draw_defenses(path, rows)


def _inversions(path: Path) -> None:
    def made(name: str, attack: str) -> Inverted:
        rgb = RANDOM.integers(0, 255, (256, 256, 3), dtype=np.uint8)
        told: dict[str, Any] = {"features": 900, "decided": 1.0, "distance": 0.1, "mae": 0.2, "ssim": 0.5, "psnr": 12.0}
        return Inverted(name=name, lifting="sub-hybrid", attack=attack, m=0 if attack == "raw" else 4, rgb=rgb, **told)

    originals = {name: RANDOM.integers(0, 255, (256, 256, 3), dtype=np.uint8) for name in ("a", "b")}
    title = "m = 4, SSIM beside the name of the attack; four photographs of the door"
    draw_inversions(path, originals, [made(name, attack) for name in originals for attack in ORDER], m=4, title=title)


def _similarity(path: Path) -> None:
    def row(attack: str, m: int, ssim: float) -> InversionRow:
        told: dict[str, Any] = {"pictures": 20, "mae": 0.2, "psnr": 12.0, "decided": 1.0, "distance": 0.1}
        return InversionRow(lifting="sub-hybrid", attack=attack, m=m, ssim=ssim, interval=(ssim - 0.03, ssim + 0.03), **told)

    rows = [row("raw", 0, 0.6)]
    rows += [row(attack, m, 0.5 - 0.05 * k - 0.01 * m) for k, attack in enumerate(ORDER[1:]) for m in DIMS]
    draw_similarity(path, rows, title="20 photographs")


def _localization(path: Path) -> None:
    def row(scene: str, setting: Setting, share: float) -> LocalizationRow:
        return LocalizationRow(
            scene=scene,
            descriptor="sift",
            features=3000.0,
            setting=setting,
            queries=12,
            localized={"0.25 m, 2 deg": share},
            accepted=share,
            median_position=0.02,
            median_rotation_deg=0.1,
            median_inliers=400 * share,
            false_queries=9,
            false_accepts=0,
            upload_bytes=1e5,
            epsilon_image=None,
        )

    rows = []
    for number, scene in enumerate(("fountain-P11", "Herz-Jesus-P8", "castle-P19", "entry-P10", "fox")):
        rows.append(row(scene, Setting(form="raw"), 1.0))
        settings = [(4096, epsilon, 2) for epsilon in (4.0, 6.0, 8.0, 10.0, 12.0)]
        settings += [(k, 10.0, 2) for k in (1024, 2048, 8192, 16384)] + [(4096, 10.0, m) for m in (1, 4, 8)]
        for k, epsilon, m in settings:
            for form, matching in (("words", "vocabulary"), ("words", "mutual-nn"), ("words+lines", "vocabulary")):
                setting = Setting(
                    form=form,  # type: ignore[arg-type]
                    matching=matching,  # type: ignore[arg-type]
                    words=k,
                    epsilon=epsilon,
                    m=m,
                    dictionary="reference",
                    iterations=1000,
                )
                rows.append(row(scene, setting, max(0.0, min(1.0, epsilon / 10 - 0.1 * number))))
    draw_localization(path, rows, default=(4096, 10.0, 2))


def _positions(path: Path) -> None:
    trials = [
        PositionTrial(
            image="a",
            aligned_share=share,
            attack=attack,
            offsets=RANDOM.normal(size=(300, 2)) * 10 ** RANDOM.uniform(-1, 2, (300, 1)),
            certified=np.zeros(300, dtype=bool),
        )
        for share in (0.0, 0.5, 1.0)
        for attack in ATTACKS
    ]
    draw_position_attacks(path, trials, title="lines of 20 photographs, at most 1000 features of each")


def _queries(path: Path) -> None:
    trials = [
        RobustnessTrial(
            place="a",
            query="q",
            matches=matches,
            wrong_share=share,
            draw=draw,
            observation=observation,
            position_error=float(RANDOM.uniform(0.5, 1.5)) if share < 0.9 else np.inf,
        )
        for matches, share in ((0, 0.0), (0, 0.5), (50, 0.5), (50, 0.8), (20, 0.9))
        for draw in range(5)
        for observation in OBSERVATION_KINDS
    ]
    answers = [
        QueryAnswer(
            place="a",
            query="q",
            kind=kind,
            observation="random lines",
            draw=0,
            accepted=kind == "true",
            matches=100,
            inliers=50,
            log10_nfa=float(RANDOM.normal(-300 if kind == "true" else 2, 60 if kind == "true" else 2)),
            position_error=None,
            rotation_error_deg=None,
        )
        for kind in ("true", "other place", "random")
        for _ in range(60)
    ]
    draw_queries(path, answers, trials, threshold=3.0)


def _forged(path: Path) -> None:
    kinds = ("mirrored", "photograph of a photograph", "one plane alone", "another place of the same house", "held out")
    answers = [
        ForgedAnswer(
            place="a",
            kind=kind,
            name="n",
            true=kind == "held out",
            form="words",
            accepted=number % 3 == 0,
            matches=100,
            inliers=20,
            log10_nfa=float(RANDOM.normal(-40, 40)),
            position_error=None,
            rotation_error_deg=None,
            reason=None,
        )
        for kind in kinds
        for number in range(30)
    ]
    draw_forged(path, answers, threshold=3.0)


def _run(scene: str, method: Any, noise: float = 0.0) -> Run:
    poses = {str(k): Rigid(rotation=np.eye(3), translation=np.array([0.8 * k, 0.0, 0.1 * k])) for k in range(6)}
    return Run(
        scene=scene,
        method=method,
        seed=0,
        gravity_noise_deg=noise,
        total=6,
        cam_from_world=poses,
        points=RANDOM.normal(size=(400, 3)) + np.array([0.0, 0.0, 6.0]),
        position=ErrorStatistics.of(np.array([0.0123])),
    )


def _maps(path: Path) -> None:
    runs = [_run(scene, method) for scene in ("strecha/fountain-P11", "lund_door", "fox") for method in ("lines", "points")]
    draw_maps(path, runs, {run.scene: run.cam_from_world for run in runs})


def _curve(path: Path) -> None:
    draw_curve(path, [_run(scene, "lines", noise) for scene in ("fountain-P11", "fox") for noise in (0.0, 0.5, 1.0, 2.0)])


def _tiles(path: Path) -> None:
    def beside(ratio: float) -> AgainstRaw:
        counts: dict[str, Any] = {"queries": 20, "raw_localized": 20, "localized": 19, "low": 0.8, "high": 1.0, "gained": 0}
        return AgainstRaw(error_ratio=ratio, median_error=None, raw_median_error=None, astray=0, raw_astray=0, **counts)

    rows = [
        TileRow(
            scene=scene,
            setting=TileSetting(tile_bytes=size, axes=64, bits=bits, asked=asked),
            tiles=5.0,
            manifest_bytes=90_000.0,
            all_bytes=900_000.0,
            fetched_bytes=float(size * asked),
            up_bytes=8.0,
            down_bytes=2.0 * size * asked,
            beside=beside(1.0 + 3e4 / size / asked),
            false_queries=44,
            false_poses=0,
            seconds=0.25,
        )
        for scene in ("lund_door", "castle-P19", "all")
        for bits in (8, 4)
        for asked in (2, 4)
        for size in (1 << 16, 1 << 17, 1 << 18)
    ]
    forms = [
        TileFormRow(scene="all", form=name, beside=beside(ratio), upload_bytes=size, device_seconds=0.5, server_seconds=0.1)  # type: ignore[arg-type]
        for name, size, ratio in (("raw", 393e3, 1.0), ("subspaces", 1.2e6, 1.05), ("words", 33e3, 1.2), ("lines", 1.3e6, 1.3))
    ]
    draw_tiles(path, rows, forms)


def _view_ratios(path: Path) -> None:
    random = generator("view ratios")
    distance = np.clip(random.normal(0.35, 0.1, (2, 900, 5)), 0, None)
    distance[:, :, 0] = np.clip(random.normal(0.2, 0.08, (2, 900)), 0, None)
    is_right = np.broadcast_to(np.arange(5) == 0, (900, 5))
    rated = RatedCandidates(
        log_ratios=np.zeros((900, 5)),
        distance=distance,
        is_verified=np.arange(1800).reshape(2, 900) % 3 == 0,
        is_right=is_right,
    )
    draw_view_ratios(path, [rated], ViewWeights())


def _oracle(path: Path) -> None:
    fall = 0.9 - 0.1 * np.log10(np.arange(1, 30_001))
    curves = {"sift": np.stack([fall, fall / 3]), "aliked-n16rot": np.stack([fall + 0.1, fall / 2])}
    draw_oracle(path, curves, title="10 photographs, sub-hybrid lifting, m = 2")


FIGURES: Mapping[str, Callable[[Path], None]] = {
    "matching": _matching,
    "descriptors": _descriptors,
    "defenses": _defenses,
    "inversions": _inversions,
    "oracle": _oracle,
    "similarity": _similarity,
    "localization": _localization,
    "positions": _positions,
    "queries": _queries,
    "forged": _forged,
    "maps": _maps,
    "curve": _curve,
    "tiles": _tiles,
    "view ratios": _view_ratios,
}

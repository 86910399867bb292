"""The bundled codebook and pool of decoys of ALIKED, made from photographs whose licenses allow it.

    python lab/benchmarks/aliked_books.py DATA [--output FOLDER] [--pictures FOLDER]

They are of a dozen places and things: three of the Berlin example of OpenSfM
(`DATA/smartphone_berlin`), two of a sequence of HPatches (`DATA/homography/hpatches_v_churchill`), and ten that the wheels of
scikit-image and scikit-learn have (`pip install scikit-image scikit-learn`; or a folder of them, --pictures). The file NOTICE
names authors. At most 2,000 features are taken of each, so that none makes most of the pool. The photographs of the example
(lund_door) are left out: they can be released with these books.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from veil.cli import main as veil

SKIMAGE = (
    "brick.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "grass.png",
    "gravel.png",
    "motorcycle_left.png",
    "rocket.jpg",
)
SKLEARN = ("china.jpg", "flower.jpg")
SOURCE = "OpenSfM (Berlin), HPatches (v_churchill), scikit-image, scikit-learn; see NOTICE"
LICENSE = "BSD-2-Clause, MIT, CC0-1.0, CC-BY-2.0"
EACH, POOL, WORDS, SEED = 2000, 16384, 2048, 0


def main() -> int:
    """Write both files; exit code 1 if a photograph is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of evaluation photographs (VEIL_DATA)")
    parser.add_argument("--output", type=Path, default=Path("src/veil/data"), help="default %(default)s")
    parser.add_argument("--pictures", type=Path, help="the ten pictures of scikit-image and scikit-learn, if not installed")
    arguments = parser.parse_args()
    photographs = _photographs(arguments.data, arguments.pictures)
    if missing := [str(path) for path in photographs if not path.is_file()]:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        features = Path(folder) / "features.h5"
        extract = ("extract", *photographs, "-o", features, "--descriptor", "aliked", "--max-features", EACH)
        common = ("--eight-bits", "--seed", SEED, "--source", SOURCE, "--license", LICENSE)
        pool = ("codebook", "build", features, "--decoy-pool", "--word-count", POOL, *common)
        book = ("codebook", "build", features, "--word-count", WORDS, *common)
        for command in (
            extract,
            (*pool, "-o", arguments.output / "decoys-aliked-n16rot-l2.npz"),
            (*book, "-o", arguments.output / "codebook-aliked-n16rot-l2.npz"),
        ):
            if code := veil([str(part) for part in command]):
                return code
    return 0


def _photographs(root: Path, pictures: Path | None) -> list[Path]:
    berlin = [root / "smartphone_berlin" / "images" / f"0{k}.jpg" for k in (1, 2, 3)]
    facade = [root / "homography" / "hpatches_v_churchill" / f"{k}.jpg" for k in (1, 6)]
    if pictures is not None:
        return [*berlin, *facade, *(pictures / name for name in (*SKIMAGE, *SKLEARN))]
    images, samples = _installed("skimage") / "data", _installed("sklearn") / "datasets" / "images"
    return [*berlin, *facade, *(images / name for name in SKIMAGE), *(samples / name for name in SKLEARN)]


def _installed(package: str) -> Path:
    """The folder of an installed package, or one that does not exist and says what to install."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else Path(f"(install {package})")


if __name__ == "__main__":
    sys.exit(main())

"""`veil extract` and `veil privatize`: the commands of the device."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from veil import chance
from veil.chance import Secret
from veil.cli.common import add_command, add_json, progress, quiet_colmap, report, say, write_json
from veil.codebook import Codebook
from veil.errors import InputError
from veil.extract import EXTRACTORS, extract
from veil.extract.picture import Picture
from veil.extract.sift import MAX_FEATURES, SiftOptions
from veil.features import Features
from veil.files.atomic import write_bytes
from veil.files.client import Entry, Ledger, home, load_secret
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.features import read_colmap_database, read_features, write_features
from veil.files.gravity import read_gravity
from veil.files.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.geometry.camera import parse
from veil.privatize.lines import LineOptions
from veil.privatize.profile import STRATEGIES, Profile, hardened, paper
from veil.privatize.release import HideInLines, Release, privatize, pseudonym
from veil.space import Space
from veil.wire import encode

EXTRACT_EXAMPLES = """\
  veil extract photos/ -o features.h5
  veil extract photos/ -o features.h5 --camera SIMPLE_RADIAL,1288.6,343,512,-0.0336
  veil extract photos/ -o features.h5 --descriptor hardtfeat      a learned descriptor on the same keypoints
  veil extract database.db -o features.h5 --normalization L1_ROOT features of a COLMAP database
  veil extract feats-superpoint.h5 -o features.h5 --imported superpoint:256   features in hloc's layout
"""
PRIVATIZE_EXAMPLES = """\
  veil privatize features.h5 -o upload/                           the hardened profile
  veil privatize features.h5 -o upload/ --decoys pool.npz         with a decoy pool of your own (recommended)
  veil privatize features.h5 -o upload/ --profile paper --m 4     what the paper describes; broken for SIFT
  veil privatize features.h5 -o upload/ --lines --gravity g.csv   positions become random lines, half of them vertical
"""


# Expected features of one image that share a decoy, above which the user is told.
MAX_DECOY_REUSE = 0.1


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the commands."""
    _register_extract(commands)
    _register_privatize(commands)


def _register_extract(commands) -> None:  # type: ignore[no-untyped-def]
    parser = add_command(
        commands,
        "extract",
        "photographs -> raw features (stay on the device)",
        "Extract features, or import those of a COLMAP database (.db) or of hloc (.h5). Keypoint (0, 0) is the\n"
        "top-left corner of the upright image. The result can be inverted into images: do not upload it.",
        EXTRACT_EXAMPLES,
    )
    parser.add_argument("input", type=Path, nargs="+", help="photographs, folders of them, a COLMAP .db, or an hloc .h5")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="features to write (.h5)")
    parser.add_argument("--descriptor", choices=EXTRACTORS, default="sift", help="default sift")
    parser.add_argument("--normalization", choices=("L2", "L1_ROOT"), default=None, help="of SIFT (default L2)")
    parser.add_argument("--max-features", type=int, default=MAX_FEATURES, help="per image (default %(default)s)")
    parser.add_argument("--first-octave", type=int, default=0, help="-1 doubles the image first (default 0)")
    parser.add_argument("--camera", metavar="MODEL,P1,...", help="intrinsics of all photographs, COLMAP's models")
    parser.add_argument("--imported", metavar="NAME[:DIM]", help="what the descriptors of an .h5 of another tool are")
    add_json(parser)
    parser.set_defaults(run=_extract)


def _register_privatize(commands) -> None:  # type: ignore[no-untyped-def]
    parser = add_command(
        commands,
        "privatize",
        "raw features -> uploads that may leave the device",
        "Lift every descriptor to an affine subspace that also contains decoys, shuffle, and write one message an\n"
        "image. The same image gives the same message under the client's secret (kept in $VEIL_HOME), and a ledger\n"
        "refuses a second, different release. An obfuscation without proof: see `veil inspect`.",
        PRIVATIZE_EXAMPLES,
    )
    parser.add_argument("features", type=Path, help="a file that `veil extract` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the .veil messages")
    parser.add_argument("--profile", choices=("hardened", "paper"), default="hardened", help="default hardened")
    parser.add_argument("--m", type=int, default=None, help="subspace dimension (paper profile only; default 4)")
    parser.add_argument("--lifting", choices=STRATEGIES, default=None, help="paper profile only (default sub-hybrid)")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="default: the bundled SIFT codebook")
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="decoy pool; default: the bundled, public one")
    parser.add_argument("--lines", action="store_true", help="send a random line through each keypoint, not its position")
    parser.add_argument(
        "--gravity", type=Path, metavar="CSV", help="with --lines: image,x,y,z of down, as `veil gravity` writes"
    )
    parser.add_argument("--aligned-share", type=float, default=0.5, metavar="Q", help="of lines along gravity (default 0.5)")
    parser.add_argument("--fresh", action="store_true", help="draw afresh instead of repeating the memoized release")
    parser.add_argument("--allow-second-release", action="store_true", help="release an image again with other choices")
    add_json(parser)
    parser.set_defaults(run=_privatize)


def _extract(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    features: dict[str, Features] = {}
    for name, item in _gather(arguments):
        features[name] = item
    write_features(arguments.output, sorted(features.items()))
    total = sum(len(item) for item in features.values())
    write_json(
        arguments.json,
        {"images": [{"name": name, "features": len(f), "space": str(f.space)} for name, f in sorted(features.items())]},
    )
    report(arguments, arguments.output, f"{total} raw features of {len(features)} images (do not upload this file)")
    return 0


def _gather(arguments: argparse.Namespace) -> Iterator[tuple[str, Features]]:
    first = arguments.input[0]
    if len(arguments.input) == 1 and first.suffix == ".db":
        space = Space(descriptor="sift", normalization=_said_normalization(arguments), dim=128)
        yield from progress(read_colmap_database(first, space=space), "importing")
    elif len(arguments.input) == 1 and first.suffix in (".h5", ".hdf5"):
        yield from progress(read_features(first, space=_imported_space(arguments)), "importing")
    else:
        yield from _from_photographs(arguments)


def _from_photographs(arguments: argparse.Namespace) -> Iterator[tuple[str, Features]]:
    options = SiftOptions(
        max_features=arguments.max_features,
        normalization=arguments.normalization or "L2",
        first_octave=arguments.first_octave,
    )
    network = load_network(arguments.descriptor)
    for name, path in progress(named_pictures(arguments.input), "extracting"):
        picture = with_camera(read_picture(path), arguments.camera)
        try:
            yield name, extract(picture, arguments.descriptor, options, network)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def with_camera(picture: Picture, camera: str | None) -> Picture:
    """The picture with the intrinsics that --camera says, if it says any."""
    if camera is None:
        return picture
    return replace(picture, camera=parse(camera, picture.camera.width_px, picture.camera.height_px))


def _said_normalization(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    if arguments.normalization is None:
        raise InputError(
            "a COLMAP database does not say how its SIFT was normalized; say --normalization L1_ROOT (COLMAP's default) or L2"
        )
    return arguments.normalization


def _imported_space(arguments: argparse.Namespace) -> Space | None:
    if arguments.imported is None:
        return None
    name, _, dim = arguments.imported.partition(":")
    if not (dim or "128").isdecimal():
        raise InputError(f"--imported takes NAME or NAME:DIM, got {arguments.imported!r}; for example superpoint:256")
    return Space(descriptor=name, normalization=arguments.normalization or "L2", dim=int(dim or 128))


def chosen_profile(arguments: argparse.Namespace, *, quantized: bool) -> Profile:
    """The profile that --profile, --m and --lifting ask for."""
    if arguments.profile == "paper":
        return paper(arguments.m if arguments.m is not None else 4, arguments.lifting or "sub-hybrid")
    if arguments.m is not None or arguments.lifting is not None:
        raise InputError("--m and --lifting belong to --profile paper; the hardened profile is fixed")
    return hardened(quantized=quantized)


def _privatize(arguments: argparse.Namespace) -> int:
    secret, ledger = load_secret(home()), Ledger(home())
    rows: list[dict] = []
    notes: dict[str, None] = {}
    gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
    if arguments.gravity and not arguments.lines:
        raise InputError("--gravity belongs to --lines: without lines, gravity is not sent")
    for name, features in progress(read_features(arguments.features), "privatizing"):
        profile = chosen_profile(arguments, quantized=features.is_quantized)
        lines = None
        if arguments.lines:
            lines = HideInLines(gravity=gravity.get(name), options=LineOptions(aligned_share=arguments.aligned_share))
        row, said = _release(arguments, name, features, profile, lines, secret, ledger)
        rows.append(row)
        notes |= dict.fromkeys(said)
    missing = sorted({row["name"] for row in rows} - set(gravity)) if gravity else []
    if missing:
        notes[f"note: {arguments.gravity} has no gravity for {', '.join(missing[:3])}; sent without"] = None
    write_json(arguments.json, {"profile": arguments.profile, "releases": rows})
    for row in rows:
        say(arguments, f"{row['name']:40} -> {row['file']}  {row['features']} features, {row['bytes'] / 1e3:.0f} kB")
    report(arguments, arguments.output, f"{len(rows)} messages; which is which stands only in {ledger.path}")
    for note in notes:
        say(arguments, note)
    return 0


def _release(
    arguments: argparse.Namespace,
    name: str,
    features: Features,
    profile: Profile,
    lines: HideInLines | None,
    secret: Secret,
    ledger: Ledger,
) -> tuple[dict, list[str]]:
    """Privatize one image, enter it in the ledger, then write it: what is written was always entered."""
    codebook, decoys = _books(arguments, profile)
    source = chance.fresh() if arguments.fresh else chance.memoized(secret)
    made = privatize(features, profile=profile, codebook=codebook, decoys=decoys, chance=source, lines=lines)
    message = encode(made.upload, dtype=profile.dtype)
    digest = hashlib.sha256(message).hexdigest()
    alias = pseudonym(secret, features.image_digest) + (f"-{digest[:8]}" if arguments.fresh else "")
    entry = Entry(
        image_digest=features.image_digest.hex(),
        released_as=alias,
        name=name,
        parameters=f"{profile.name} {profile.strategy} m={profile.m} codebook={codebook.digest[:12]} "
        f"decoys={decoys.digest[:12]} secret={secret.fingerprint} {_hidden(lines)}",
        features=len(features),
        message_digest=digest,
        fresh=arguments.fresh,
    )
    ledger.record(entry, allow_second=arguments.allow_second_release)
    write_bytes(arguments.output / f"{alias}.veil", message)
    row = {"name": name, "file": f"{alias}.veil", "features": len(features), "bytes": len(message)}
    return row, _notes(arguments, features, profile, made)


def _hidden(lines: HideInLines | None) -> str:
    """How positions are sent, for the ledger: a position and a line, or two different lines, meet in the keypoint."""
    if lines is None:
        return "positions"
    down = "none" if lines.gravity is None else ",".join(repr(float(value)) for value in lines.gravity)
    return f"lines aligned={lines.options.aligned_share:g} gravity={down}"


def _notes(arguments: argparse.Namespace, features: Features, profile: Profile, made: Release) -> list[str]:
    """What the user should know of this release."""
    said = [f"warning: {warning}" for warning in profile.warnings(quantized=features.is_quantized)]
    if profile.decoys == "descriptors" and not arguments.decoys:
        said.append(
            "note: the bundled decoy pool is public, so whoever holds it can tell decoys from descriptors; build your "
            "own with `veil codebook build --decoys` and give it with --decoys"
        )
    if made.decoy_reuse > MAX_DECOY_REUSE:
        said.append(
            "note: the features of one image share decoys (with this pool each serves more than "
            f"{MAX_DECOY_REUSE} of them), and subspaces that share decoys give these away even if the pool is secret "
            "(docs/theory/lifting.md, Eq. 8); use a larger pool or fewer features"
        )
    return said


def _books(arguments: argparse.Namespace, profile: Profile) -> tuple[Codebook, Codebook]:
    """The codebook and the decoys that the options name; where neither PCA nor centroids are used, the pool is both."""
    decoys = arguments.decoys and _read_book(arguments.decoys)
    if profile.decoys == "descriptors":
        decoys = decoys or _read_book(None, decoys=True)
        if not profile.compress and not arguments.codebook:
            return decoys, decoys
    codebook = _read_book(arguments.codebook)
    return codebook, decoys or codebook


@cache
def _read_book(path: Path | None, *, decoys: bool = False) -> Codebook:
    """Each file once; without a path, what ships with the package."""
    if path is not None:
        return read_codebook(path)
    return bundled_decoys() if decoys else bundled_codebook()

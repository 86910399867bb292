"""`veil inspect`: the contents of a file, its guarantee, and what it does not protect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

from veil.audit.measured_forms import MeasuredForm
from veil.cli.common import EXIT_ERROR, EXIT_OK, Commands, say, tell_skipped, write_json
from veil.cli.records import Record, add_record_command, json_file, positional
from veil.cli.remedies import advised
from veil.errors import FileFormatError, VeilError
from veil.files.atomic import read_bytes
from veil.files.codebooks import read_codebook
from veil.files.device.ledger import read_ledger
from veil.files.features import holds_features, read_features
from veil.files.maps.format import read_map
from veil.files.measured_forms import bundled_measured_forms
from veil.forms import Released, Subsets, Subspaces
from veil.geometry.camera import SENT_DEVIATIONS, Camera
from veil.json_records.values import Reasons
from veil.ldp.composition import account
from veil.ldp.guarantee import Guarantee, LocalDP
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.mechanisms.selection import Selection
from veil.scene import MapCheck, Scene
from veil.wire.codec import decode
from veil.wire.message import LineUpload, Message, Upload

EXAMPLES = """\
  veil inspect upload/3f2a....veil
  veil inspect upload/*.veil --json -
  veil inspect map/
  veil inspect features.h5
  veil inspect ~/.local/share/veil/ledger.sqlite      what was released of what (stays on the device)
"""

SENT_IN_CLEAR = "number and positions of keypoints, image size, camera intrinsics"
SENT_WITH_LINES = "number of keypoints, a line through each, gravity if known, image size, camera intrinsics"
LINES_SHOW = (
    "one coordinate of each keypoint: along gravity-aligned lines nothing is hidden but the height",
    "positions to some pixels, where descriptors tell which features are neighbors (`veil evaluate neighborhoods`, by rule)",
    "positions of keypoints whose points four or more images see, or a map holds: the points project to them",
)
POSITIONS_SHOW = (
    "the place: who has a map of it finds where the camera stood from keypoint positions and gravity alone, without any "
    "descriptor or word. No epsilon of words changes that (docs/theory/words_upright.md)"
)
NOT_SENT = "photograph, raw descriptors, scale, orientation, response, order of detection, EXIF, time, place, file name"
NOT_PROTECTED = (
    "features that match another upload of the place, of anybody, or a map: the closest points estimate them",
    "a share of the features of this file alone: learned attacks estimate them (lab/results/attacks.md#attacks-that-learn)",
    "the outline of the scene: keypoint positions alone show where texture is",
    "anything, if the same view is released twice with different choices: the subspaces intersect in the descriptors",
    "near repeats such as a static video: the repeats' descriptors differ slightly, and so do their subspaces",
)
OUTSIDE_THE_GUARANTEE = (
    "which cell of the dictionary a descriptor lies in, if the true word is found out: it then is known to within that cell, "
    "whatever epsilon is. The dictionary decides how wide its cells are",
    "points that are seen again: every photograph of a point, and every frame of a video, spends epsilon once more. Only the "
    "same photograph under the same secret repeats its draw",
    "the outline of the scene: keypoint positions alone show where texture is",
)
NOTHING_PROMISED = "unlimited: nothing is promised, neither for a feature nor for all of them"
# A map keeps features because of their words: composed over the kept ones alone, epsilon would be less than what was lost.
CHOSEN_BY_WORDS = (
    "that of the releases it was made from, which a map does not tell: its {} features were kept because their words match, so "
    "they do not compose like features that were chosen before. The clients' ledgers know it (`veil budget show`)"
)
DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Inspect(Record):
    """Describe uploads, maps, raw features or codebooks in plain words. Of several files, those that cannot be read are
    skipped and named, and the exit code is 1.
    """

    files: tuple[Path, ...] = positional(
        "message, map folder, features (.h5), codebook (.npz) or ledger (.sqlite)", metavar="FILE"
    )
    json: Path | None = json_file()


_AnyMessageJson = TypedDict(
    "_AnyMessageJson",
    {
        "what": str,
        "space": str,
        "bytes": str,
        "image": str,
        "focal length": str,
        "guarantee": str,
        "sent in clear": str,
        "not in this file": str,
        "not protected": list[str],
    },
)
_SomeMessagesJson = TypedDict(
    "_SomeMessagesJson",
    {
        "dictionary": str,
        "privacy loss": str | list[str],
        "posterior": str,
        "guarantee of the lines": str,
        "measured": str,
    },
    total=False,
)


class MessageFactsJson(_AnyMessageJson, _SomeMessagesJson):
    """Facts about a message."""


_AnyMapJson = TypedDict(
    "_AnyMapJson",
    {"what": str, "space": str, "mean reprojection error": str, "guarantee": str, "not protected": list[str]},
)
_SomeMapsJson = TypedDict("_SomeMapsJson", {"checked": list[str], "dictionary": str, "privacy loss": str}, total=False)


class MapFactsJson(_AnyMapJson, _SomeMapsJson):
    """Facts about a map."""


class FeatureFactsJson(TypedDict):
    """Facts about raw features."""

    what: str
    space: str
    guarantee: str


class CodebookFactsJson(TypedDict):
    """Facts about a codebook."""

    what: str
    sha256: str
    source: str


class LedgerFactsJson(TypedDict):
    """Facts about a ledger."""

    what: str
    releases: list[str]


FileFactsJson = MessageFactsJson | MapFactsJson | FeatureFactsJson | CodebookFactsJson | LedgerFactsJson


class SeveralFactsJson(TypedDict):
    """Facts about several files by path, and why others could not be read."""

    files: Mapping[str, FileFactsJson]
    skipped: Reasons


def register(commands: Commands) -> None:
    """Add `veil inspect` to the parser's commands."""
    add_record_command(commands, "inspect", "what a file contains and does not protect", EXAMPLES, Inspect, _inspect)


def _inspect(arguments: Inspect) -> int:
    if len(arguments.files) == 1:
        facts = _facts(arguments.files[0])
        write_json(arguments.json, facts)
        _print(arguments, facts)
        return EXIT_OK
    facts_of: dict[str, FileFactsJson] = {}
    skipped: dict[str, str] = {}
    for path in arguments.files:
        try:
            facts_of[str(path)] = _facts(path)
        except VeilError as error:
            skipped[str(path)] = advised(error)
    tell_skipped(skipped)
    record: SeveralFactsJson = {"files": facts_of, "skipped": skipped}
    write_json(arguments.json, record)
    for name, facts in facts_of.items():
        _print(arguments, {"file": name, **facts})
    return EXIT_ERROR if skipped else EXIT_OK


def _facts(path: Path) -> FileFactsJson:
    """Facts about one file for people, by their names. Raises VeilError for a file that is none of veil's."""
    if path.is_dir():
        return _map_facts(path)
    if holds_features(path):
        return _feature_facts(path)
    if path.suffix == ".npz":
        book = read_codebook(path)
        return {"what": f"codebook of {len(book)} {book.kind}", "sha256": book.digest, "source": book.provenance.source}
    if path.suffix == ".sqlite" and path.is_file():
        return _ledger_facts(path)
    if not path.exists():
        raise FileFormatError(f"there is no file or folder {path}; check its name")
    data = read_bytes(path)
    return upload_facts(decode(data), len(data))


def _print(arguments: Inspect, facts: Mapping[str, object]) -> None:
    """Print facts for people, unless standard output is for machines."""
    if str(arguments.json) == "-":
        return
    for key, value in facts.items():
        if isinstance(value, (list, tuple)):
            say(arguments, f"{key}:")
            for item in value:
                say(arguments, f"  - {item}")
        else:
            say(arguments, f"{key}: {value}")


def upload_facts(upload: Message, size_bytes: int) -> MessageFactsJson:
    """Facts about a message of `size_bytes` bytes for people, by their names."""
    form, has_lines = upload.form, isinstance(upload, LineUpload)
    in_clear = SENT_WITH_LINES if has_lines else SENT_IN_CLEAR
    if isinstance(upload, Upload) and upload.gravity is not None:
        in_clear += f", gravity ({', '.join(f'{value:.4f}' for value in upload.gravity)})"
    dictionary: _SomeMessagesJson = {"dictionary": form.dictionary} if isinstance(form, Subsets) else {}
    account_facts: _SomeMessagesJson = _account_facts(form) if isinstance(form, Subsets) else {}
    of_lines: _SomeMessagesJson = {}
    if isinstance(upload, LineUpload):
        of_lines["guarantee of the lines"] = _promise(upload.lines.guarantee)
    return {
        "what": f"{len(upload)} features as {_described(form)}",
        "space": str(form.space),
        **dictionary,
        "bytes": f"{size_bytes} ({size_bytes / max(len(upload), 1):.0f} a feature)",
        "image": f"{upload.camera.width_px}x{upload.camera.height_px} px, {upload.camera.model}",
        "focal length": _focal_fact(upload.camera),
        "guarantee": _promise(form.guarantee),
        **account_facts,
        **of_lines,
        "sent in clear": f"{in_clear}; no guarantee covers them" if isinstance(form, Subsets) else in_clear,
        "not in this file": NOT_SENT,
        **_measured_facts(upload),
        "not protected": [
            *(LINES_SHOW if has_lines else (POSITIONS_SHOW,)),
            *(OUTSIDE_THE_GUARANTEE if isinstance(form, Subsets) else NOT_PROTECTED),
        ],
    }


def _focal_fact(camera: Camera) -> str:
    """The focal length of a message, and what the message says of its deviation."""
    if not camera.focal_is_known:
        return f"{camera.focal_px:.6g} px, a guess, or known no better than to {100 * SENT_DEVIATIONS[-1]:g} %"
    return f"{camera.focal_px:.6g} px, known to {100 * camera.focal.deviation:g} % (one standard deviation, rounded up)"


def _measured_facts(upload: Message) -> _SomeMessagesJson:
    """Shares that attacks recovered from the measured form that a message has; empty if none is like it."""
    known = {item.form: item for item in bundled_measured_forms()}
    name = _measured_form(upload, known)
    if name not in known:
        return {}
    of = "of real photographs in this form" if name != "positions alone" else "of real photographs"
    return {"measured": f"attacks recovered, {of} ({name}; docs/choose.md): {known[name].told}"}


def _measured_form(upload: Message, known: Mapping[str, MeasuredForm]) -> str:
    """Name of the measured form that gives away as much as a message does, or more; empty if there is none."""
    form, lines = upload.form, ", lines" if isinstance(upload, LineUpload) else ""
    if isinstance(form, Subspaces):
        if form.profile != "hardened":
            return ""
        return "subspaces" + (lines or ("" if len(upload) <= (Selection().features or 0) else " of all features"))
    epsilon = form.mechanism.epsilon
    if epsilon == 0:
        return "" if lines else "positions alone"
    measured = {e: name for e in range(1, 31) if (name := f"words, epsilon {e}{lines}") in known}
    return measured.get(min((e for e in measured if e >= epsilon), default=0), "")


def _described(form: Released) -> str:
    if isinstance(form, Subsets):
        if form.mechanism.epsilon == 0:
            return "positions alone: each has a word at random, which says nothing of its descriptor"
        return f"{form.m} of {form.mechanism.dictionary_size} words each"
    return f"affine subspaces of dimension {form.m}, profile {form.profile}"


def _account_facts(form: Subsets) -> _SomeMessagesJson:
    """The privacy loss of words for a feature, an object and the image; or that nothing is promised."""
    mechanism = form.mechanism
    if math.isinf(mechanism.epsilon):
        return {
            "privacy loss": NOTHING_PROMISED,
            "posterior": f"the true word is among the {form.m} that were sent, for certain",
        }
    spent = account(mechanism, len(form), delta=DELTA)
    part = spent.object_features
    return {
        "privacy loss": [
            f"one feature: epsilon {_plain(mechanism.epsilon)}",
            f"an object of {part} features: {_composed(mechanism, part, spent.object_epsilon)}",
            f"the image, {len(form)} features: {_composed(mechanism, len(form), spent.total_epsilon)}",
        ],
        "posterior": f"each word that was sent is the true one with probability {outward(mechanism.posterior, 3)}, "
        f"if all {mechanism.dictionary_size} were equally likely before",
    }


def _composed(mechanism: SubsetMechanism, features: int, epsilon: float) -> str:
    total = f"{(Decimal(_plain(mechanism.epsilon)) * features).normalize():f}"
    return f"epsilon {outward(epsilon)} at delta {DELTA:g} (exact composition); {total} (the plain sum, at delta 0)"


def _plain(epsilon: float) -> str:
    """An epsilon with all its digits and no exponent."""
    return f"{Decimal(repr(float(epsilon))).normalize():f}"


def _promise(guarantee: Guarantee) -> str:
    if isinstance(guarantee, LocalDP):
        return f"epsilon {_plain(guarantee.epsilon)} for each {guarantee.unit} (local differential privacy)"
    return f"no proof of privacy. {guarantee.reason}"


def _map_facts(path: Path) -> MapFactsJson:
    scene = read_map(path)
    forms = [image.form for image in scene.images.values()]
    # The form with the weakest guarantee, as words of images may differ; other forms promise the same for all images.
    form = max(forms, key=lambda form: form.mechanism.epsilon if isinstance(form, Subsets) else 0.0)
    checked: _SomeMapsJson = {} if scene.check is None else {"checked": _check_facts(scene.check)}
    return {
        "what": f"{'public' if scene.is_public else 'private'} map of {len(scene.images)} images, {len(scene.points)} points",
        "space": str(scene.space),
        "mean reprojection error": f"{scene.mean_reprojection_error_px:.2f} px",
        **checked,
        "guarantee": _promise(form.guarantee),
        **_map_words(scene),
        "not protected": [
            "the 3D points and camera poses themselves: they show the shape of the scene",
            *([] if scene.is_public else OUTSIDE_THE_GUARANTEE if isinstance(form, Subsets) else NOT_PROTECTED[:1]),
        ],
    }


def _check_facts(check: MapCheck) -> list[str]:
    return [*check.described().split("; "), *(f"left out {name}: {reason}" for name, reason in sorted(check.left_out.items()))]


def _map_words(scene: Scene) -> _SomeMapsJson:
    """The dictionary of a map's words, and why the map cannot state their privacy loss; empty for other maps."""
    forms = [image.form for image in scene.images.values() if isinstance(image.form, Subsets)]
    if not forms:
        return {}
    no_privacy = any(math.isinf(form.mechanism.epsilon) for form in forms)
    return {
        "dictionary": ", ".join(sorted({form.dictionary for form in forms})),
        "privacy loss": NOTHING_PROMISED if no_privacy else CHOSEN_BY_WORDS.format(sum(len(form) for form in forms)),
    }


def _feature_facts(path: Path) -> FeatureFactsJson:
    count, images, spaces = 0, 0, set()
    for _, features in read_features(path):
        count, images = count + len(features), images + 1
        spaces.add(str(features.space))
    return {
        "what": f"{count} RAW features of {images} images",
        "space": ", ".join(sorted(spaces)),
        "guarantee": "none: raw features can be inverted into images. Do not upload this file; run `veil privatize`",
    }


def _ledger_facts(path: Path) -> LedgerFactsJson:
    entries = read_ledger(path)
    lines = [
        f"{datetime.fromtimestamp(e.released_at):%Y-%m-%d %H:%M} {e.name} as {e.released_as}: {e.features} features, "
        f"{e.parameters}{', drawn afresh' if e.fresh else ''}"
        for e in entries
    ]
    return {"what": f"ledger of {len(entries)} releases; it links photographs to uploads, so keep it", "releases": lines}

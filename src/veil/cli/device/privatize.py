"""`veil privatize`: messages that may leave the device, from raw features; each release is entered in the ledger first."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from veil.cli.common import Bar, Commands, explain, progress, report, say, say_table, tell, write_json
from veil.cli.device.asked_protection import AskedProtection, asked_descriptors, protection_of, require_consistent
from veil.cli.records import add_record_command, json_file, option, positional
from veil.cli.remedies import phrase
from veil.device.device import Device, DeviceRelease, MakeRelease, releasing
from veil.device.doors import LEAST_FOR_MAP, MOST_FOR_MAP, select_for_map
from veil.device.protection import HideInSubspaces, HideInWords, Protection, Purpose
from veil.errors import InputError, VeilError
from veil.features import Features
from veil.files.atomic import replacing_folder, write_bytes, writing
from veil.files.features import count_images, read_features
from veil.files.photographs.gravity import read_gravity, require_names
from veil.files.photographs.names import read_names, write_names
from veil.ldp.budget import total
from veil.ldp.composition import composed_epsilon
from veil.ldp.rounding import outward
from veil.mechanisms.selection import ChosenFeatures
from veil.places.maps import NoMap
from veil.report.tables import Name, Table, fixed, numbers

EXAMPLES = """\
  veil privatize query.h5 -o sent/ --gravity g.csv                to localize: words, under an epsilon
  veil privatize query.h5 -o sent/ --gravity g.csv --epsilon 3 --features 200   fewer, under a smaller one
  veil privatize query.h5 -o sent/ --obfuscate                    to localize in a map of subspaces, or without gravity
  veil privatize query.h5 -o sent/ --no-descriptors --gravity g.csv   positions alone; localized near known images
  veil privatize photos.h5 -o sent/ --for map --decoys pool.npz   for a map: subspaces, with a decoy pool of your own
  veil privatize photos.h5 -o sent/ --for map --decoys others.h5  decoys of whole photographs, each used once
  veil privatize photos.h5 -o sent/ --for map --lines --gravity g.csv   positions become random lines, half of them vertical
  veil privatize photos.h5 -o sent/ --for map --write-names names.csv   which message is of which photograph
"""


OBFUSCATION = "note: subspaces are an obfuscation without proof; `veil audit` shows what attacks recover"


@dataclass(frozen=True, kw_only=True)
class Privatize(AskedProtection):
    """Protect the descriptors of photographs, shuffle, and write one message an image. The same image gives the same
    message under the client's secret (kept in $VEIL_HOME), and a ledger refuses a second, different release: then
    none of the images is released.
    To be localized, every descriptor becomes a random subset of a public dictionary under local differential privacy:
    an epsilon for each feature, which composes over the image and all that the ledger holds (`veil budget`). What
    left before leaves again as it did, in other photographs of the same view too. Where a map has tiles, nothing need
    leave at all (`veil localize tiles:PLACE`).
    For a map, every descriptor is lifted to an affine subspace that also contains decoys, an obfuscation without
    proof (`veil inspect`). Of three photographs or more, which give a map of their raw features, nothing leaves but
    what such a map uses.
    """

    features: Path = positional("a file that `veil extract` wrote")
    output: Path = option("folder for the .veil messages", required=True, short="-o", metavar="FOLDER")
    purpose: Purpose = option(
        "what the messages are for, `veil localize` or `veil map` (default %(default)s)",
        default="localize",
        name="--for",
        choices=get_args(Purpose),
    )
    fresh: bool = option("draw afresh instead of repeating the memoized release", default=False)
    new_secret: bool = option("go on with another secret though the ledger's is lost for good", default=False)
    allow_private_dictionary: bool = option("use a dictionary that was made from your own photographs", default=False)
    write_names: Path | None = option(
        "also write which message is of which photograph, for --names of other commands, or add it to the table that is there; "
        "keep it on the device",
        metavar="CSV",
    )
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil privatize` to the parser's commands."""
    summary = "raw features -> uploads that may leave the device"
    add_record_command(commands, "privatize", summary, EXAMPLES, Privatize, _privatize)


def _privatize(arguments: Privatize) -> int:
    require_consistent(arguments, arguments.purpose)
    if arguments.allow_private_dictionary and not arguments.words:
        raise InputError("--allow-private-dictionary belongs to --words; subspaces have no dictionary")
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"cannot write to {arguments.output}: it is not a folder; choose another place or free it")
    names = _known_names(arguments)
    device = Device(replace_lost=arguments.new_secret)
    for note in device.notes:
        tell(note)
    images = ((name, item.image_digest) for name, item in read_features(arguments.features))
    descriptors = asked_descriptors(
        arguments,
        arguments.purpose,
        next((item.space.descriptor for _, item in read_features(arguments.features)), "sift"),
        device,
        images,
        allow_private_dictionary=arguments.allow_private_dictionary,
    )
    gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
    record = _no_releases(descriptors)
    notes = _notes_before(arguments, device, descriptors)
    chosen = _chosen_for_map(arguments, device, notes) if _may_be_for_map(arguments, descriptors) else {}
    with _staged(arguments.output) as staged:
        try:
            with releasing(
                device, purpose=arguments.purpose, fresh=arguments.fresh, allow_second=arguments.allow_second_release
            ) as make_release:
                total_images = count_images(arguments.features)
                for name, features in progress(read_features(arguments.features), "privatizing", total_images):
                    require_names([name] if arguments.write_names else [])
                    asked = protection_of(arguments, arguments.purpose, descriptors, features, gravity, name)
                    made = _made(make_release, features, _with_chosen(asked, chosen.get(name)), name)
                    write_bytes(staged / f"{made.released_as}.veil", made.message)
                    _enter(record, name, made)
                    notes |= dict.fromkeys(made.notes)
                    notes |= dict.fromkeys(f"note: {phrase(remedy)}" for remedy in made.remedy)
                    if gravity and name not in gravity:
                        notes[f"note: {arguments.gravity} has no gravity for {name}; sent without"] = None
        except VeilError:
            tell("veil: no image was released, and nothing was written")
            raise
        _publish(staged, arguments.output)
    if isinstance(descriptors, HideInWords) and (seen := _point_note(device, descriptors.delta)):
        notes[seen] = None
    if arguments.write_names is not None:
        write_names(
            arguments.write_names, names | {row["file"].removesuffix(".veil"): row["name"] for row in record["releases"]}
        )
    _report(arguments, record, notes, device)
    return 0


def _known_names(arguments: Privatize) -> dict[str, str]:
    """The table of --write-names, which is added to; empty where there is none.

    Raises InputError for a table that would leave with the messages, FileFormatError for a file of something else.
    """
    path = arguments.write_names
    if path is None:
        return {}
    if path.resolve().is_relative_to(arguments.output.resolve()):
        raise InputError(
            f"{path} would leave with the messages, whose photographs it names; write it outside {arguments.output}"
        )
    return read_names(path) if path.exists() else {}


@contextmanager
def _staged(output: Path) -> Iterator[Path]:
    """A temporary folder for messages on the disk of `output`, which is removed when the block ends."""
    with writing(output), replacing_folder(output / "messages" if output.is_dir() else output) as folder:
        yield folder


def _made(make_release: MakeRelease, features: Features, protection: Protection, name: str) -> DeviceRelease:
    """The release of one image, whose error names the image."""
    try:
        return make_release(features, protection, name)
    except VeilError as error:
        raise error.at(name) from None


def _publish(staged: Path, output: Path) -> None:
    """Move all messages to their folder."""
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        for path in staged.iterdir():
            os.replace(path, output / path.name)


def _may_be_for_map(arguments: Privatize, descriptors: HideInSubspaces | HideInWords) -> bool:
    """Whether the features may be those that a map of the photographs uses: they are for one, and no number is asked for."""
    is_asked = arguments.features_sent is not None or arguments.min_distance is not None
    return arguments.purpose == "map" and not is_asked and isinstance(descriptors, HideInSubspaces)


def _chosen_for_map(arguments: Privatize, device: Device, notes: dict[str, None]) -> Mapping[str, ChosenFeatures]:
    """The features that a map of three or more photographs uses, by name, none without a map; notes tell what was chosen.

    Photographs that left before leave as they did.
    """
    count = count_images(arguments.features) or 0
    if count > MOST_FOR_MAP:
        notes[
            f"note: each photograph leaves by the usual selection, as there are more than {MOST_FOR_MAP}; those of one place "
            "leave for a map of it where they stand in a file of their own"
        ] = None
    if not LEAST_FOR_MAP <= count <= MOST_FOR_MAP:
        return {}
    photographs = dict(read_features(arguments.features))
    known = {name: device.sent(item) for name, item in photographs.items()}
    sent = {name: chosen for name, chosen in known.items() if chosen is not None}
    if len(sent) == len(photographs):
        return sent
    chosen = select_for_map(photographs, sent=sent, steps=Bar)
    if isinstance(chosen, NoMap):
        notes[f"note: each photograph leaves by the usual selection, as their raw features give no map: {chosen.reason}"] = None
        return sent
    notes["note: what a map of these photographs uses leaves, and nothing else"] = None
    outside = [name for name in photographs if name not in chosen]
    if outside:
        notes[
            f"note: {len(outside)} of {len(photographs)} photographs are not in the device's own map, and leave by the usual "
            f"selection: {', '.join(outside[:3])}{', ...' if len(outside) > 3 else ''}"
        ] = None
    return chosen


def _with_chosen(protection: Protection, chosen: ChosenFeatures | None) -> Protection:
    if chosen is None or isinstance(protection.descriptors, HideInWords):
        return protection
    return replace(protection, descriptors=replace(protection.descriptors, selection=chosen))


def _notes_before(arguments: Privatize, device: Device, descriptors: HideInSubspaces | HideInWords) -> dict[str, None]:
    """Sentences about the choices, before anything is released, in the order in which they are told."""
    notes = dict.fromkeys(descriptors.notes() if isinstance(descriptors, HideInWords) else [OBFUSCATION, *_outside(device)])
    if isinstance(descriptors, HideInWords) and not arguments.gravity and (arguments.lines or arguments.no_descriptors):
        of_words = "words with lines" if arguments.lines else "positions alone"
        notes[f"warning: {of_words} are localized upright only, and no gravity is sent; give it with --gravity"] = None
    return notes


def _point_note(device: Device, delta: float) -> str:
    """Sentence on what a point has lost that all photographs of the ledger show; empty for a single release."""
    charges = [entry.charge for entry in device.ledger.entries() if entry.charge is not None]
    if len(charges) < 2 or any(math.isinf(charge.mechanism.epsilon) for charge in charges):
        return ""
    spent = composed_epsilon(total(charges, of_each=1), delta)
    return (
        f"note: a point that all {len(charges)} releases in words of this ledger show has lost epsilon {outward(spent)}: "
        "each photograph draws anew, and a map tells which features see one point (`veil budget set point` limits it)"
    )


class ReleaseJson(TypedDict):
    """A release of an image."""

    name: str
    file: str
    features: int
    found: int
    bytes: int


class WordReleaseJson(ReleaseJson):
    """A release in words."""

    image_epsilon: float | None
    median_error: float


class SubspaceReleasesJson(TypedDict):
    """Releases in subspaces."""

    profile: Literal["hardened"]
    releases: list[ReleaseJson]


class WordReleasesJson(TypedDict):
    """Releases in words, and their mechanism."""

    profile: Literal["words"]
    words: int
    m: int
    epsilon: float | None
    delta: float
    truth: float
    posterior: float
    dictionary: str
    releases: list[WordReleaseJson]


PrivatizeJson = SubspaceReleasesJson | WordReleasesJson


def _no_releases(descriptors: HideInSubspaces | HideInWords) -> PrivatizeJson:
    """The record before the first release."""
    if isinstance(descriptors, HideInSubspaces):
        return {"profile": "hardened", "releases": []}
    return {
        "profile": "words",
        "words": descriptors.mechanism.dictionary_size,
        "m": descriptors.mechanism.m,
        "epsilon": descriptors.mechanism.epsilon,
        "delta": descriptors.delta,
        "truth": float(descriptors.mechanism.truth),
        "posterior": descriptors.mechanism.posterior,
        "dictionary": descriptors.book.digest,
        "releases": [],
    }


def _enter(record: PrivatizeJson, name: str, made: DeviceRelease) -> None:
    """Add a release to the record."""
    row: ReleaseJson = {
        "name": name,
        "file": f"{made.released_as}.veil",
        "features": len(made.upload),
        "found": made.image_features,
        "bytes": len(made.message),
    }
    if record["profile"] == "hardened":
        record["releases"].append(row)
        return
    assert made.image_epsilon is not None and made.median_error is not None  # of words
    record["releases"].append({**row, "image_epsilon": made.image_epsilon, "median_error": made.median_error})


def _outside(device: Device) -> list[str]:
    """The warning that budgets do not limit subspaces, if there are budgets."""
    budgets = " and ".join(sorted(device.budgets()))
    if not budgets:
        return []
    return [f"warning: subspaces have no epsilon: they are outside of the budget of the {budgets}, which says nothing of them"]


def _report(arguments: Privatize, record: PrivatizeJson, notes: dict[str, None], device: Device) -> None:
    """Write and print the releases that were made, then the notes."""
    write_json(arguments.json, record, private=True)
    say_table(arguments, release_table(record["releases"]))
    if record["profile"] == "words":
        explain(arguments, f"epsilon at delta {record['delta']:g}; distance of words: the median from descriptors")
    messages = f"{len(record['releases'])} messages"
    report(
        arguments,
        arguments.output,
        f"{messages}; which is which stands {'' if arguments.write_names else 'only '}in {device.ledger.path}",
    )
    if arguments.write_names is not None:
        report(arguments, arguments.write_names, "their photographs' names")
    for note in notes:
        say(arguments, note)


def release_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The table of releases; those in words have an epsilon, and the median distance of a word from its descriptor."""
    in_words = any("image_epsilon" in row for row in rows)
    return Table(
        columns=[
            Name("image"),
            Name("message", least=99),
            *numbers("features", "found", "kB", *(("epsilon of image", "distance of words") if in_words else ())),
        ],
        rows=[
            (
                row["name"],
                row["file"],
                str(row["features"]),
                str(row["found"]),
                f"{row['bytes'] / 1e3:.0f}",
                *((outward(row["image_epsilon"]), fixed(row["median_error"], 2)) if in_words else ()),
            )
            for row in rows
        ],
    )

"""`veil privatize`: raw features become what may leave the device, each release entered in the ledger first."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from veil import randomness as chance
from veil.cli.client import client_files
from veil.cli.common import add_command, add_json, at_least, progress, report, say, write_json
from veil.cli.words import DELTA, SUBSET_SIZE, Words, chosen_words
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, VeilError
from veil.features import Features
from veil.files.atomic import write_bytes
from veil.files.client import Entry, Ledger
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.features import read_features
from veil.files.gravity import read_gravity
from veil.ldp.budget import outward
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import LineOptions, line_key
from veil.mechanisms.profile import STRATEGIES, Profile, hardened, paper
from veil.mechanisms.release import HideInLines, Release, privatize, pseudonym
from veil.randomness import Secret, Secure
from veil.wire import encode
from veil.wire.message import Message

EXAMPLES = """\
  veil privatize features.h5 -o upload/                           the hardened profile
  veil privatize features.h5 -o upload/ --decoys pool.npz         with a decoy pool of your own (recommended)
  veil privatize features.h5 -o upload/ --profile paper --m 4     what the paper describes; broken for SIFT
  veil privatize features.h5 -o upload/ --lines --gravity g.csv   positions become random lines, half of them vertical
  veil privatize features.h5 -o upload/ --words bundled --epsilon 6 --m 2 --features 200   words, under an epsilon
"""

# Expected features of one image that share a decoy, above which the user is told.
MAX_DECOY_REUSE = 0.1


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""
    parser = add_command(
        commands,
        "privatize",
        "raw features -> uploads that may leave the device",
        "Lift every descriptor to an affine subspace that also contains decoys, shuffle, and write one message an\n"
        "image. The same image gives the same message under the client's secret (kept in $VEIL_HOME), and a ledger\n"
        "refuses a second, different release. An obfuscation without proof: see `veil inspect`.\n"
        "With --words, every descriptor becomes a random subset of a public dictionary under local differential privacy:\n"
        "an epsilon for each feature, which composes over the image and all that the ledger holds (`veil budget`).",
        EXAMPLES,
    )
    parser.add_argument("features", type=Path, help="a file that `veil extract` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the .veil messages")
    parser.add_argument("--profile", choices=("hardened", "paper"), default=None, help="default hardened")
    parser.add_argument(
        "--m",
        type=int,
        default=None,
        help=f"subspace dimension (paper profile only; default 4), or with --words how many to send (default {SUBSET_SIZE})",
    )
    parser.add_argument("--lifting", choices=STRATEGIES, default=None, help="paper profile only (default sub-hybrid)")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="default: the bundled SIFT codebook")
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="decoy pool; default: the bundled, public one")
    parser.add_argument("--words", metavar="FILE", help="send words of this dictionary (.npz, or 'bundled'), not subspaces")
    parser.add_argument("--epsilon", type=float, metavar="E", help="of each feature, with --words ('inf': no privacy)")
    parser.add_argument(
        "--features", type=at_least(1), dest="features_sent", metavar="N", help="with --words: send N features chosen at random"
    )
    parser.add_argument("--delta", type=float, default=DELTA, help="with --words: of the image's epsilon (default %(default)g)")
    parser.add_argument("--lines", action="store_true", help="send a random line through each keypoint, not its position")
    parser.add_argument(
        "--gravity", type=Path, metavar="CSV", help="with --lines: image,x,y,z of down, as `veil gravity` writes"
    )
    parser.add_argument("--aligned-share", type=float, default=0.5, metavar="Q", help="of lines along gravity (default 0.5)")
    parser.add_argument("--fresh", action="store_true", help="draw afresh instead of repeating the memoized release")
    parser.add_argument("--allow-second-release", action="store_true", help="release an image again with other choices")
    parser.add_argument(
        "--new-secret", action="store_true", help="go on with another secret though the ledger's is lost for good"
    )
    parser.add_argument(
        "--allow-private-dictionary", action="store_true", help="use a dictionary that was made from your own photographs"
    )
    add_json(parser)
    parser.set_defaults(run=_privatize)


def chosen_profile(arguments: argparse.Namespace, *, quantized: bool) -> Profile:
    """The profile that --profile, --m and --lifting ask for."""
    if arguments.profile == "paper":
        return paper(arguments.m if arguments.m is not None else 4, arguments.lifting or "sub-hybrid")
    if arguments.m is not None or arguments.lifting is not None:
        raise InputError("--m and --lifting belong to --profile paper; the hardened profile is fixed")
    return hardened(quantized=quantized)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Made:
    """One image's message before it is entered and written. `said` ends its line for people, `facts` its row in the JSON."""

    upload: Message
    dtype: Literal["float16", "float32"]
    parameters: str
    mechanism: SubsetMechanism | None
    said: str
    facts: dict
    notes: list[str]


def _privatize(arguments: argparse.Namespace) -> int:
    _require_consistent(arguments)
    secret, ledger = client_files(replace_lost=arguments.new_secret)
    words = chosen_words(arguments, ledger) if arguments.words else None
    gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
    rows: list[dict] = []
    notes = dict.fromkeys(words.notes() if words else _outside(ledger))
    if words and arguments.lines and not arguments.gravity:
        notes["warning: words with lines are localized upright only, and no gravity is sent; give it with --gravity"] = None
    try:
        for name, features in progress(read_features(arguments.features), "privatizing"):
            lines = None
            if arguments.lines:
                lines = HideInLines(gravity=gravity.get(name), options=LineOptions(aligned_share=arguments.aligned_share))
            source = chance.fresh() if arguments.fresh else chance.memoized(secret)
            made = _in_words(name, features, words, source, lines) if words else _lifted(arguments, features, source, lines)
            hidden = "positions" if lines is None else line_key(features, chance=source, **vars(lines))
            rows.append(_release(arguments, name, features, made, hidden, secret, ledger))
            notes |= dict.fromkeys(made.notes)
            if gravity and name not in gravity:
                notes[f"note: {arguments.gravity} has no gravity for {name}; sent without"] = None
    except VeilError:
        if rows:  # what was released before the refusal stays released, and stands in the ledger
            _report(arguments, rows, notes, words, ledger)
        raise
    _report(arguments, rows, notes, words, ledger)
    return 0


def _require_consistent(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together before anything is drawn or entered."""
    if arguments.gravity and not arguments.lines:
        raise InputError("--gravity belongs to --lines: without lines, gravity is not sent")
    subspaces = ("profile", "lifting", "codebook", "decoys")
    if arguments.words and any(getattr(arguments, name) is not None for name in subspaces):
        raise InputError("--profile, --lifting, --codebook and --decoys belong to subspaces; --words sends words instead")
    if not arguments.words and (arguments.epsilon is not None or arguments.features_sent or arguments.allow_private_dictionary):
        raise InputError("--epsilon, --features and --allow-private-dictionary belong to --words; subspaces have no epsilon")
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"cannot write to {arguments.output}: it is not a folder; choose another place or free it")


def _outside(ledger: Ledger) -> list[str]:
    """That budgets do not see subspaces, where there are budgets."""
    budgets = " and ".join(sorted(ledger.budgets()))
    if not budgets:
        return []
    return [f"warning: subspaces have no epsilon: they are outside of the budget of the {budgets}, which says nothing of them"]


def _report(
    arguments: argparse.Namespace, rows: list[dict], notes: dict[str, None], words: Words | None, ledger: Ledger
) -> None:
    facts = {"profile": "words" if words else arguments.profile or "hardened", **(words.facts() if words else {})}
    said = [row.pop("said") for row in rows]
    write_json(arguments.json, {**facts, "releases": rows})
    for row, more in zip(rows, said, strict=True):
        size = f"{row['features']} features, {row['bytes'] / 1e3:.0f} kB"
        say(arguments, f"{row['name']:40} -> {row['file']}  {size}{more}")
    report(arguments, arguments.output, f"{len(rows)} messages; which is which stands only in {ledger.path}")
    for note in notes:
        say(arguments, note)


def _release(
    arguments: argparse.Namespace,
    name: str,
    features: Features,
    made: _Made,
    hidden: str,
    secret: Secret,
    ledger: Ledger,
) -> dict:
    """Enter one image in the ledger, then write it: what is written was always entered."""
    message = encode(made.upload, dtype=made.dtype)
    digest = hashlib.sha256(message).hexdigest()
    alias = _alias(pseudonym(secret, features.image_digest), features.image_digest.hex(), digest, ledger, fresh=arguments.fresh)
    entry = Entry(
        image_digest=features.image_digest.hex(),
        released_as=alias,
        name=name,
        parameters=f"{made.parameters} secret={secret.fingerprint} {hidden}",
        features=len(made.upload),
        message_digest=digest,
        fresh=arguments.fresh,
        mechanism=made.mechanism,
    )
    ledger.record(entry, allow_second=arguments.allow_second_release)
    write_bytes(arguments.output / f"{alias}.veil", message)
    row = {"name": name, "file": f"{alias}.veil", "features": len(made.upload), "bytes": len(message)}
    return {**row, **made.facts, "said": made.said}


def _alias(name: str, image_digest: str, message_digest: str, ledger: Ledger, *, fresh: bool) -> str:
    """The name of a message: that under which it was entered before, or one that no other message of the image has."""
    others = ledger.entries_of(image_digest)
    known = next((entry.released_as for entry in others if entry.message_digest == message_digest), None)
    if known is not None:
        return known
    return f"{name}-{message_digest[:8]}" if fresh or any(entry.released_as == name for entry in others) else name


def _in_words(name: str, features: Features, words: Words, source: Secure, lines: HideInLines | None) -> _Made:
    found = words.release(features, source, lines)
    epsilon = words.image_epsilon(len(found.upload))
    notes = []
    if found.missing:
        notes.append(
            f"note: {name} has {len(found.upload)} features, {found.missing} fewer than --features asks for; all are sent, and "
            "their number tells how textured it is"
        )
    return _Made(
        upload=found.upload,
        dtype="float32",
        parameters=found.parameters.text,
        mechanism=words.mechanism,
        said=f", epsilon {outward(epsilon)} at delta {words.delta:g}, words at a median distance of {found.median_error:.2f}",
        facts={"image_epsilon": epsilon, "median_error": found.median_error},
        notes=notes,
    )


def _lifted(arguments: argparse.Namespace, features: Features, source: Secure, lines: HideInLines | None) -> _Made:
    profile = chosen_profile(arguments, quantized=features.is_quantized)
    codebook, decoys = _books(arguments, profile)
    found = privatize(features, profile=profile, codebook=codebook, decoys=decoys, chance=source, lines=lines)
    return _Made(
        upload=found.upload,
        dtype=profile.dtype,
        parameters=found.parameters.text,
        mechanism=None,
        said="",
        facts={},
        notes=_notes(arguments, features, profile, found),
    )


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

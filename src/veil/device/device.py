"""The releasing device: secret, ledger and budgets together, so that no release escapes the ledger by accident."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Listed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil import randomness
from veil.device.protection import (
    FEATURES,
    HideInSubspaces,
    HideInWords,
    Made,
    Protection,
    Purpose,
    make,
    positions_key,
    require_localizable,
    usual_protection,
    usual_words,
)
from veil.errors import InputError, ReleaseRefused, Remedy
from veil.features import Features
from veil.files.device.drawn import DrawnReader, SealedDraws, opened_draws, sealed_draws
from veil.files.device.home import home
from veil.files.device.ledger import Entry, Ledger, connected, record_all, require_enterable, require_secret
from veil.files.device.secret import load_secret
from veil.files.device.spent import spent_on, unusable
from veil.ldp.budget import Budget, BudgetUnit
from veil.mechanisms.decoy_photographs import DecoyPhotographs
from veil.mechanisms.lines import normalized_keypoints
from veil.mechanisms.public import publish
from veil.mechanisms.release import PRIVATE_DICTIONARY, HideInLines, made_from, pseudonym
from veil.mechanisms.repeats import Answered, DrawnFeatures, drawn_arrays, sketched, with_earlier_draws
from veil.mechanisms.selection import ChosenFeatures, Selection, selected_rows
from veil.mechanisms.sequence_selection import rows_of_sequence
from veil.one_line import one_line
from veil.randomness import Randomness
from veil.wire import encode
from veil.wire.message import LineUpload, Message
from veil.wire.sequence import Sequence, joined_messages

# Begins the note of earlier draws in the ledger.
EARLIER = " earlier="


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceRelease:
    """One release of an image, entered in the ledger.

    - `message`: the bytes that may leave the device (`veil.decode` reads them).
    - `released_as`: name of the release in the ledger, hex digits and dashes; only who has the secret can link it to the image.
    - `upload`: the content of the message as a record, `Upload` or `LineUpload`, before it was rounded for the wire.
    - `image_features`: number of features that the image has, sent or not.
    - `image_epsilon`: of words, epsilon of the whole image at the protection's delta; None for subspaces, of which nothing is
      proved.
    - `median_error`: of words, median distance of the descriptors to their words (unit vectors); None for subspaces.
    - `missing`: of words, number of features that were asked for and that the image does not have.
    - `notes`: sentences that the user should read.
    - `remedy`: what would protect better.
    - `shown_before`: number of features that left with the draws of an earlier release.
    """

    message: bytes
    released_as: str
    upload: Message
    image_features: int
    image_epsilon: float | None = None
    median_error: float | None = None
    missing: int = 0
    notes: tuple[str, ...] = ()
    remedy: tuple[Remedy, ...] = ()
    shown_before: int = 0

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceRelease:
    """One release of several frames, entered in the ledger.

    - `message`: the bytes that may leave the device (`veil.decode_sequence` reads them).
    - `frames`: the release of each frame, whose own messages stand in `message`.
    - `sequence_epsilon`: of words, epsilon of all features of all frames together at the protection's delta; None for
      subspaces, of which nothing is proved.
    - `left_out`: number of features that were not sent as an earlier frame sends the like, or the law preferred others.
    """

    message: bytes
    frames: tuple[DeviceRelease, ...]
    sequence_epsilon: float | None
    left_out: int

    __repr__ = one_line


class Device:
    """A client that releases photographs under its secret and enters each release in its ledger first.

    - `folder`: holds the secret and the ledger; None: $VEIL_HOME, or else the platform's folder for application data. Both are
      made on first use. Keep a copy of the secret: it repeats the releases, and without it nothing that the ledger lists can be
      released again.
    - `replace_lost`: goes on with a new secret all the same, where the old one is lost.

    Attributes: `ledger`, and `notes`, sentences about what was newly made. Raises ReleaseRefused if the secret is lost or does
    not fit the ledger, FileFormatError if either is damaged or open to others, InputError if `folder` cannot hold them.
    """

    def __init__(self, folder: Path | str | None = None, *, replace_lost: bool = False) -> None:
        place = home() if folder is None else Path(folder)
        made: list[str] = []
        self._secret = load_secret(place, on_new=made.append, replace_lost=replace_lost)
        self.ledger = Ledger(place)
        self._drawn = DrawnReader(self._secret)
        self._public: str | None = None  # digest of the dictionary that was compared with all images of the ledger
        if not made and self.ledger.is_new:
            path = self.ledger.path
            made.append(
                f"note: a new ledger was made beside an older secret: {path}. It does not know what was released before"
            )
        self.notes = tuple(made)
        require_secret(self.ledger, self._secret, replace_lost=replace_lost)

    def release(
        self,
        features: Features,
        protection: Protection | None = None,
        *,
        purpose: Purpose = "localize",
        gravity: Float64[np.ndarray, "3"] | None = None,
        name: str = "",
        fresh: bool = False,
        allow_second: bool = False,
    ) -> DeviceRelease:
        """Protect one image, enter the release in the ledger, and return it with the message that may leave.

        The same image and choices give the same bytes each time (release.md#memoized-draws).

        - `features`: raw features of the image.
        - `protection`: what is sent; by default what is usual for the purpose (`usual_protection`).
        - `purpose`: "localize" gives features that left before their earlier draws again, of releases that were made so, as
          bursts and video need it (release.md#near-repeats). "map" draws for each image by itself, as the images of a map
          match by their draws. An image that left before leaves as it did then, whatever is asked.
        - `gravity`: of the usual protection, down in the camera frame; a given `protection` has its own.
        - `name`: of the image, for the ledger alone; by default the name of the release.
        - `fresh`: draws anew, independently of earlier releases.
        - `allow_second`: accepts a second, different release of the image; the two together give it away.

        Raises ReleaseRefused, and releases nothing, for a second, different release (unless allowed), beyond a budget, with
        decoys or words made from this very image, or where the usual protection lacks what it needs; InputError (RangeError,
        SpaceError) if features and choices do not fit, FileFormatError if the ledger is damaged.
        """
        if protection is None:
            protection = usual_protection(purpose, features, gravity=gravity)
        else:
            require_one_gravity(gravity)
        with releasing(self, purpose=purpose, fresh=fresh, allow_second=allow_second) as make_release:
            return make_release(features, protection, name)

    def release_sequence(
        self,
        sequence: Sequence[Features],
        descriptors: HideInWords | HideInSubspaces | None = None,
        *,
        features_sent: int | None = FEATURES,
        gravity: Iterable[Float64[np.ndarray, "3"]] | None = None,
        names: Iterable[str] | None = None,
        allow_second: bool = False,
    ) -> SequenceRelease:
        """Protect several frames, enter them in the ledger together, and return them with the one message that may leave.

        A thing that several frames show leaves once, with one draw (docs/theory/sequences.md#which-features-leave). No
        guarantee covers the motions, which say how the device moved, nor positions: together they place it like any video.

        - `sequence`: raw features of the frames, and their motions.
        - `descriptors`: what is sent in place of descriptors; by default the usual words of queries. Which features leave is
          chosen here, whatever it says.
        - `features_sent`: number of features of all frames together, shared evenly; None: all that may leave.
        - `gravity`: of each frame, down in its camera (x right, y down, z forward). Words are localized with it alone.
        - `names`: of the frames, for the ledger alone.
        - `allow_second`: accepts a second, different release of a frame.

        Raises what `release` raises, and releases nothing then; InputError for another number of readings or names.
        """
        frames = sequence.frames
        downs = [None] * len(frames) if gravity is None else list(gravity)
        called = [""] * len(frames) if names is None else list(names)
        if not len(downs) == len(called) == len(frames):
            raise InputError(
                f"{len(frames)} frames need as many readings of gravity and names, got {len(downs)} and {len(called)}"
            )
        if descriptors is None:
            for features, down in zip(frames, downs, strict=True):
                require_localizable(features, down)
            descriptors = usual_words(frames[0].space.descriptor)
        rows = rows_of_sequence(frames, sequence.cam_from_rig, features_sent, randomness.memoized(self._secret))
        made = []
        with releasing(self, allow_second=allow_second) as make_release:
            for features, own, down, name in zip(frames, rows, downs, called, strict=True):
                if not len(own):
                    raise InputError("a frame has nothing to send that earlier frames do not; leave it out")
                if isinstance(descriptors, HideInWords):
                    sent, chosen = features.take(own), replace(descriptors, features_sent=None)
                    made.append(make_release(sent, Protection(chosen, gravity=down), name))
                else:
                    hidden = replace(descriptors, selection=ChosenFeatures(rows=own))
                    made.append(make_release(features, Protection(hidden, gravity=down), name))
            data = joined_messages([one.message for one in made], sequence.cam_from_rig)
        count = sum(len(one.upload) for one in made)
        epsilon = descriptors.image_epsilon(count) if isinstance(descriptors, HideInWords) else None
        left_out = sum(len(features) for features in frames) - count
        return SequenceRelease(message=data, frames=tuple(made), sequence_epsilon=epsilon, left_out=left_out)

    def _made(
        self,
        features: Features,
        protection: Protection,
        name: str,
        *,
        purpose: Purpose,
        fresh: bool,
        pending: Listed[Entry],
    ) -> tuple[Entry, DeviceRelease]:
        """A release that is entered nowhere, and its entry; `pending` are those that will be entered before it."""
        if isinstance(protection.descriptors, HideInWords) and protection.descriptors.book.digest != self._public:
            self.require_public(protection.descriptors, [(name or "this image", features.image_digest)])
        source = randomness.fresh() if fresh else randomness.memoized(self._secret)
        image = features.image_digest.hex()
        protection = self._with_unspent(protection, image, pending, fresh=fresh)
        made = make(protection, features, source)
        hidden = positions_key(protection, features, source)
        others = [*self.ledger.entries_of(image), *(entry for entry in pending if entry.image_digest == image)]
        if left := [entry.parameters for entry in others if not entry.fresh]:  # the image leaves as it did then
            purpose = "localize" if any(EARLIER in parameters for parameters in left) else "map"
        again = None if fresh or purpose == "map" else self._again(made, protection, features, source, pending)
        upload = made.upload if again is None else again.upload
        message = encode(upload, dtype=made.dtype)
        digest = hashlib.sha256(message).hexdigest()
        alias = _alias(others, pseudonym(self._secret, features.image_digest), digest, fresh=fresh)
        entry = Entry(
            image_digest=image,
            released_as=alias,
            name=name or alias,
            parameters=f"{made.parameters.text} secret={self._secret.fingerprint} {hidden}{'' if again is None else again.key}",
            features=len(upload),
            message_digest=digest,
            fresh=fresh,
            mechanism=made.mechanism,
            chosen=_chosen(protection),
            charged=None if again is None else again.new,
            draws=None if again is None else again.draws,
            decoy_photographs=tuple(digest.hex() for digest in made.decoy_photographs),
        )
        # The image that is entered now is compared with no other dictionary.
        self._public = protection.descriptors.book.digest if isinstance(protection.descriptors, HideInWords) else None
        return entry, DeviceRelease(
            message=message,
            released_as=alias,
            upload=upload,
            image_features=made.image_features,
            image_epsilon=made.image_epsilon,
            median_error=made.median_error,
            missing=made.missing,
            notes=_notes(entry.name, made),
            remedy=made.remedy,
            shown_before=0 if again is None else len(upload) - again.new,
        )

    def _with_unspent(self, protection: Protection, image: str, pending: Listed[Entry], *, fresh: bool) -> Protection:
        """The protection with those decoy photographs that may serve an image: its own if it left before, or unspent ones."""
        descriptors = protection.descriptors
        if isinstance(descriptors, HideInWords) or not isinstance(descriptors.decoys, DecoyPhotographs):
            return protection
        with connected(self.ledger.path, mode="ro") as connection:
            own, used = spent_on(connection, image), unusable(connection)
        for entry in pending:
            used |= {entry.image_digest, *entry.decoy_photographs}
            if not own and entry.image_digest == image and not entry.fresh:
                own = list(entry.decoy_photographs)
        if own and not fresh:
            left = descriptors.decoys.named([bytes.fromhex(digest) for digest in own])
        else:
            left = descriptors.decoys.without({bytes.fromhex(digest) for digest in used})
        return replace(protection, descriptors=replace(descriptors, decoys=left))

    def _again(
        self, made: Made, protection: Protection, features: Features, source: Randomness, pending: Listed[Entry]
    ) -> _Again:
        """The upload with the earlier draws of features that left before, from the ledger and the releases of this call."""
        image, kind = features.image_digest.hex(), made.kind
        sent = features.take(made.rows)
        sketches = sketched(publish(sent).vectors, source)
        places = normalized_keypoints(sent) if isinstance(protection.lines, HideInLines) else None
        with connected(self.ledger.path, mode="ro") as connection:
            earlier = self._drawn.earlier(connection, kind, image)
        for entry in pending:
            if entry.image_digest == image:
                break
            if entry.draws is not None and entry.draws[0] == kind:
                earlier.append(opened_draws(entry.draws, self._secret))
        answered = with_earlier_draws(made.upload, sketches, earlier, places=places)
        drawn = DrawnFeatures.of(
            answered.message,
            sketches[answered.rows],
            answered.is_new,
            dtype=made.dtype,
            places=None if places is None else places[answered.rows],
        )
        new = int(answered.is_new.sum())
        is_whole = new == len(made.upload)
        return _Again(
            upload=made.upload if is_whole else answered.message,
            new=new,
            key="" if is_whole else f"{EARLIER}{_digest_of(answered)}",
            draws=sealed_draws(drawn, kind, self._secret),
        )

    def sent(self, features: Features) -> ChosenFeatures | None:
        """The features of an image that left in subspaces before, None if it was not released so (`select_for_map`)."""
        image = features.image_digest.hex()
        if all(entry.mechanism is not None for entry in self.ledger.entries_of(image)):
            return None
        chosen = self.ledger.chosen(image)
        if chosen is None:
            chosen = ChosenFeatures(rows=selected_rows(features, Selection(), randomness.memoized(self._secret)))
        return chosen if len(chosen.rows) and chosen.rows[-1] < len(features) else None

    def require_public(self, words: HideInWords, images: Iterable[tuple[str, bytes]]) -> None:
        """Raise ReleaseRefused if the dictionary of `words` was made from any of `images`, or from an image of the ledger.

        `images` are pairs of a name and a digest (`Features.image_digest`). Words made from an image are all but its
        descriptors, which no epsilon covers (words.md#what-epsilon-does-not-cover). `words.allow_private_dictionary` allows it.
        """
        book = words.book
        if words.allow_private_dictionary or not book.provenance.image_digests:
            return
        private = {name for name, digest in images if made_from(book, digest)}
        private |= {entry.name for entry in self.ledger.entries() if made_from(book, bytes.fromhex(entry.image_digest))}
        if private:
            names = sorted(private)
            raise ReleaseRefused(
                f"the dictionary was made from {len(names)} of your own photographs ({', '.join(names[:3])}): "
                f"{PRIVATE_DICTIONARY}",
                remedy=Remedy("allow", "HideInWords.allow_private_dictionary"),
            )

    def budgets(self) -> dict[BudgetUnit, Budget]:
        """The budgets of epsilon in force, by unit ("image", "point", "session"); a unit without a budget is missing."""
        return self.ledger.budgets()

    def set_budget(self, budget: Budget) -> None:
        """Put a budget in force: from now on, releases of words that would exceed it are refused."""
        self.ledger.set_budget(budget.unit, budget)

    def clear_budget(self, unit: BudgetUnit) -> None:
        """Remove the budget of `unit`, "image", "point" or "session"."""
        self.ledger.set_budget(unit, None)

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell the secret apart and say nothing about it."""
        return self._secret.fingerprint


@dataclass(frozen=True, kw_only=True, eq=False)
class _Again:
    """A message with earlier draws, the number of features drawn anew, text for the ledger, and their sealed draws."""

    upload: Message
    new: int
    key: str
    draws: SealedDraws


def _digest_of(answered: Answered) -> str:
    """16 hex digits of the draws that left again and of the features that stayed: equal ones stand for equal messages."""
    parts = [np.packbits(answered.is_new).tobytes(), answered.rows.astype("<i8").tobytes()]
    parts += [values[~answered.is_new].tobytes() for values in drawn_arrays(answered.message.form).values()]
    if isinstance(answered.message, LineUpload):
        parts.append(answered.message.lines.coefficients[~answered.is_new].tobytes())
    return hashlib.blake2b(b"|".join(parts), digest_size=8).hexdigest()


# Makes one of several releases: of features, a protection and the image's name.
MakeRelease = Callable[[Features, Protection, str], DeviceRelease]


@contextmanager
def releasing(
    device: Device, *, purpose: Purpose = "localize", fresh: bool = False, allow_second: bool = False
) -> Iterator[MakeRelease]:
    """A block whose releases are entered in the ledger together when it ends well, and none of them if it raises.

    It is given a function that makes one: of features, a protection and the image's name. No message may leave before the
    block has ended. Parameters and errors are those of `Device.release`.
    """
    entries: list[Entry] = []

    def make_release(features: Features, protection: Protection, name: str) -> DeviceRelease:
        entry, release = device._made(features, protection, name, purpose=purpose, fresh=fresh, pending=entries)
        require_enterable(device.ledger, entry, allow_second=allow_second)  # before others are made; all are judged at the end
        entries.append(entry)
        return release

    yield make_release
    record_all(device.ledger, entries, allow_second=allow_second)


def require_one_gravity(gravity: Float64[np.ndarray, "3"] | None) -> None:
    """Raise InputError for gravity beside a protection that is given, which has its own."""
    if gravity is not None:
        raise InputError("gravity goes with the usual protection; of another one give it to Protection, or to HideInLines")


def _chosen(protection: Protection) -> ChosenFeatures | None:
    """The features that leave in a protection, where they were chosen one by one."""
    selection = None if isinstance(protection.descriptors, HideInWords) else protection.descriptors.selection
    return selection if isinstance(selection, ChosenFeatures) else None


def _alias(others: Listed[Entry], name: str, message_digest: str, *, fresh: bool) -> str:
    """The name for a message of an image: that of this message among its `others`, or one that none of them has."""
    known = next((entry.released_as for entry in others if entry.message_digest == message_digest), None)
    if known is not None:
        return known
    return f"{name}-{message_digest[:8]}" if fresh or any(entry.released_as == name for entry in others) else name


def _notes(name: str, made: Made) -> tuple[str, ...]:
    """Notes for the user on one release."""
    if not made.missing:
        return made.notes
    few = (
        f"note: {name} has {len(made.upload)} features, {made.missing} fewer than were asked for; all are sent, and their "
        "number tells how textured it is"
    )
    return (*made.notes, few)

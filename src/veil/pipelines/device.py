"""The device that releases: secret, ledger and budgets together, so that no release escapes the ledger by accident."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from veil import randomness
from veil.errors import ReleaseRefused
from veil.features import Features
from veil.files.client import Entry, Ledger, home, load_secret
from veil.ldp.budget import Budget, Unit
from veil.mechanisms.lines import line_key
from veil.mechanisms.release import PRIVATE_DICTIONARY, made_from, pseudonym
from veil.pipelines.protection import HideInSubspaces, HideInWords, Made, Protection
from veil.wire import encode
from veil.wire.message import Message


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceRelease:
    """What may leave the device: the bytes of a `message`, the name under which the ledger knows it, and how it was `made`."""

    message: bytes
    released_as: str
    made: Made

    @property
    def upload(self) -> Message:
        """The message as a record."""
        return self.made.upload


class Device:
    """A client: releases photographs under its secret, each entered in its ledger first.

    `folder` holds secret and ledger ($VEIL_HOME, or the platform's folder for application data, if None). Both are made on
    first use; `notes` says so. Keep a copy of the secret: it repeats the releases, and without it nothing that the ledger lists
    can be released again. `replace_lost` goes on with a new secret all the same. Raises ReleaseRefused if the secret is lost or
    does not fit the ledger, FileFormatError if either is damaged or open to others, InputError if `folder` cannot hold them.
    """

    def __init__(self, folder: Path | str | None = None, *, replace_lost: bool = False) -> None:
        place = home() if folder is None else Path(folder)
        made: list[str] = []
        self._secret = load_secret(place, on_new=made.append, replace_lost=replace_lost)
        self.ledger = Ledger(place)
        if not made and self.ledger.is_new:
            path = self.ledger.path
            made.append(
                f"note: a new ledger was made beside an older secret: {path}. It does not know what was released before"
            )
        self.notes = tuple(made)
        self.ledger.require_secret(self._secret, replace_lost=replace_lost)

    def release(
        self,
        features: Features,
        protection: Protection | None = None,
        *,
        name: str = "",
        fresh: bool = False,
        allow_second: bool = False,
    ) -> DeviceRelease:
        """Protect one image (hardened subspaces, positions as they are, if not said), enter it in the ledger, encode it.

        The same image and choices give the same bytes each time. `name` is for the ledger alone. `fresh` draws anew.
        Raises ReleaseRefused, and releases nothing, for a second, different release of the image (unless `allow_second` accepts
        that the two together give it away), beyond a budget, or with decoys or words made from this very image; InputError,
        RangeError or SpaceError if features and choices do not fit.
        """
        protection = protection or Protection(descriptors=HideInSubspaces())
        source = randomness.fresh() if fresh else randomness.memoized(self._secret)
        lines = protection.lines
        made = protection.descriptors.make(features, source, lines)
        hidden = "positions" if lines is None else line_key(features, randomness=source, **vars(lines))
        message = encode(made.upload, dtype=made.dtype)
        digest = hashlib.sha256(message).hexdigest()
        image = features.image_digest.hex()
        alias = self._alias(pseudonym(self._secret, features.image_digest), image, digest, fresh=fresh)
        entry = Entry(
            image_digest=image,
            released_as=alias,
            name=name or alias,
            parameters=f"{made.parameters.text} secret={self._secret.fingerprint} {hidden}",
            features=len(made.upload),
            message_digest=digest,
            fresh=fresh,
            mechanism=made.mechanism,
        )
        self.ledger.record(entry, allow_second=allow_second)
        return DeviceRelease(message=message, released_as=alias, made=made)

    def require_public(self, words: HideInWords, images: Iterable[tuple[str, bytes]]) -> None:
        """Raise ReleaseRefused if the dictionary was made from any of `images` (name and digest), or of the ledger's.

        Such words are all but descriptors of the image, which no epsilon covers (words.md#what-epsilon-does-not-cover).
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
                f"{PRIVATE_DICTIONARY}, or pass --allow-private-dictionary if these photographs are public anyway"
            )

    def budgets(self) -> dict[Unit, Budget]:
        """The budgets of epsilon in force, by unit: "image" and "session"."""
        return self.ledger.budgets()

    def set_budget(self, budget: Budget) -> None:
        """Refuse from now on whatever would exceed `budget`."""
        self.ledger.set_budget(budget.unit, budget)

    def clear_budget(self, unit: Unit) -> None:
        """Put no budget in force for `unit`."""
        self.ledger.set_budget(unit, None)

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell the secret apart and say nothing about it."""
        return self._secret.fingerprint

    def _alias(self, name: str, image_digest: str, message_digest: str, *, fresh: bool) -> str:
        """The name of a message: that under which it was entered before, or one that no other message of the image has."""
        others = self.ledger.entries_of(image_digest)
        known = next((entry.released_as for entry in others if entry.message_digest == message_digest), None)
        if known is not None:
            return known
        return f"{name}-{message_digest[:8]}" if fresh or any(entry.released_as == name for entry in others) else name

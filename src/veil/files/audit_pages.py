"""Pictures of an audit's page (`veil audit -o audit.html`): what was released, and what attacks drew of it."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import UInt8

from veil.errors import FileFormatError, Remedy
from veil.files.atomic import read_bytes
from veil.files.photographs.pictures import DAMAGE

Kind = Literal["photograph", "sent", "features", "reconstructed", "unprotected"]
MOST_BYTES = 1 << 26
MOST_PIXELS = 1 << 24
PREFIX = "data:image/jpeg;base64,"


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditPicture:
    """A picture of an audit's page.

    - `release`: name of the message; `image`: name of its photograph, empty where the audit did not know it.
    - `kind`: the photograph, the view of the server, features colored by an attack, a picture that an attack drew, of
      the whole photograph or, in older pages, of its central square, or one of raw features, had they been sent.
    - `title`: the sentence below it.
    """

    release: str
    image: str
    kind: Kind
    title: str
    rgb: UInt8[np.ndarray, "height width 3"]


def is_audit_page(path: Path) -> bool:
    """Whether a path names a file as `veil audit` writes its page."""
    return path.suffix.lower() in (".html", ".htm") and not path.is_dir()


def read_audit_page(path: Path) -> list[AuditPicture]:
    """The pictures of the page that `veil audit` wrote, in its order.

    The page may come from anyone: nothing of it but these pictures is used, and they are decoded here. Raises FileFormatError
    if it is none of `veil audit`, is too large, or a picture is damaged.
    """
    data = read_bytes(path)
    if len(data) > MOST_BYTES:
        raise FileFormatError(f"{path} has {len(data):,} bytes; an audit's page has at most {MOST_BYTES:,}")
    parser = _Pictures()
    try:
        parser.feed(data.decode("utf-8"))
        parser.close()
    except (UnicodeDecodeError, AssertionError) as error:
        raise FileFormatError(
            f"{path} is not the page of an audit ({error})", remedy=Remedy("make", "page of an audit")
        ) from None
    if not parser.is_audit:
        raise FileFormatError(f"{path} is not the page of an audit", remedy=Remedy("make", "page of an audit"))
    pictures = []
    for attributes in parser.images:
        kind = attributes["data-kind"]
        if kind not in get_args(Kind):
            raise FileFormatError(f"{path} holds a picture of a kind that this veil does not know: {kind!r}")
        pictures.append(
            AuditPicture(
                release=attributes["data-release"],
                image=attributes.get("data-image", ""),
                kind=kind,  # type: ignore[arg-type]  # checked above
                title=attributes.get("alt", ""),
                rgb=_decoded(attributes.get("src", ""), path),
            )
        )
    return pictures


class _Pictures(HTMLParser):
    """Collects the `img` elements that say which release they are of."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.images: list[dict[str, str]] = []
        self.is_audit = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "meta" and attributes.get("name") == "generator":
            self.is_audit = attributes.get("content", "").startswith("veil audit")
        if tag == "img" and "data-release" in attributes and "data-kind" in attributes:
            self.images.append(attributes)


def _decoded(source: str, path: Path) -> np.ndarray:
    """The pixels of a data URI. Raises FileFormatError if it is none, or too large."""
    from PIL import Image

    try:
        data = base64.b64decode(source.removeprefix(PREFIX), validate=True)
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise FileFormatError(
                    f"{path} holds a picture of {picture.width} x {picture.height} px, more than an audit draws"
                )
            return np.asarray(picture.convert("RGB"))
    except (binascii.Error, Image.DecompressionBombError, *DAMAGE) as error:
        raise FileFormatError(f"a picture of {path} is damaged ({error})", remedy=Remedy("renew", "audit")) from None

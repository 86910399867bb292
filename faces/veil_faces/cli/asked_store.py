"""Options that commands on a store of face templates share, and the store and client that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.records import Record, json_file, option, positional
from veil_faces.cli.asked_network import AskedNetwork
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_store import FaceStore
from veil_faces.files.faces import read_faces
from veil_faces.template import FaceClient


@dataclass(frozen=True, kw_only=True)
class AskedStore(Record):
    """The store."""

    store: Path = positional("the store's file")
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class AskedDecoys(AskedStore):
    """The store and its decoys."""

    decoys: Path = option("descriptors of other people, the same for every command on the store", required=True, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class AskedPurpose(AskedStore):
    """The store and a purpose in it."""

    purpose: str = option("what the template is for (default '%(default)s')", default="default")


@dataclass(frozen=True, kw_only=True)
class AskedPerson(AskedPurpose):
    """The store, and a person and purpose in it."""

    person: str = option("whose template it is; a pseudonym is enough", required=True)


@dataclass(frozen=True, kw_only=True)
class AskedFace(AskedNetwork, AskedDecoys, AskedPurpose):
    """A face for a store and a purpose."""

    face: Path = positional(
        "a photograph of one face (it needs veil-faces[networks]), or descriptors (.npz, HDF5; see --face-name)"
    )
    face_name: str | None = option("which face of a file of descriptors", metavar="NAME")


def client_of(store: FaceStore, decoys: Path) -> FaceClient:
    """The client of this device for a store, with its scheme, secret and decoys (a file)."""
    return FaceClient(scheme=store.scheme, decoys=read_faces(decoys), secret=FaceHome.for_store(store.path).secret)


def opened_store(arguments: AskedDecoys) -> tuple[FaceStore, FaceClient]:
    """The store that the options name, sealed by this client's secret, and the client with the store's decoys."""
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    return store, client_of(store, arguments.decoys)

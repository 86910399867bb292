"""veil lets cameras localize, map and recognize through a server that cannot see what they saw.

Every name of `veil.__all__` is public, and loads its module when it is first used, so that `import veil` is light. On the
device: `read_picture`, `extract`, a `Protection` and a `Device`, whose `release` gives the bytes that may leave. On the server:
`decode`, `map_images`, `localize` against a `Map`. A public map that `cut_map` cuts into tiles serves devices that localize
themselves, `localize_with_tiles`. `run_audit` attacks one's own upload as the server could. The names are listed in
docs/reference/python.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from veil.attacks.attack import Attack as Attack
    from veil.attacks.registry import ATTACKS as ATTACKS
    from veil.client.client import Client as Client
    from veil.client.tile_access import open_tiles as open_tiles
    from veil.client.tile_use import TileUse as TileUse
    from veil.codebooks.codebook import Codebook as Codebook
    from veil.codebooks.decoys import DecoyPool as DecoyPool
    from veil.codebooks.dictionary import Dictionary as Dictionary
    from veil.errors import FileFormatError as FileFormatError
    from veil.errors import InputError as InputError
    from veil.errors import ReleaseRefused as ReleaseRefused
    from veil.errors import SpaceError as SpaceError
    from veil.errors import VeilError as VeilError
    from veil.errors import WireError as WireError
    from veil.extraction import extract as extract
    from veil.extraction.detection import DetectorOptions as DetectorOptions
    from veil.extraction.picture import Picture as Picture
    from veil.extraction.sift import SiftOptions as SiftOptions
    from veil.features import Features as Features
    from veil.files.codebooks import read_codebook as read_codebook
    from veil.files.codebooks import write_codebook as write_codebook
    from veil.files.features import read_features as read_features
    from veil.files.features import write_features as write_features
    from veil.files.gravity import read_gravity as read_gravity
    from veil.files.pictures import read_picture as read_picture
    from veil.files.weights import load_lightglue as load_lightglue
    from veil.forms import Lines as Lines
    from veil.forms import Points as Points
    from veil.forms import Subsets as Subsets
    from veil.forms import Subspaces as Subspaces
    from veil.geometry.camera import Camera as Camera
    from veil.geometry.rigid import Rigid as Rigid
    from veil.ldp.budget import Budget as Budget
    from veil.ldp.guarantee import ComputationalPrivacy as ComputationalPrivacy
    from veil.ldp.guarantee import LocalDP as LocalDP
    from veil.ldp.guarantee import NoProof as NoProof
    from veil.ldp.guarantee import PerfectPrivacy as PerfectPrivacy
    from veil.localization.judge import Localization as Localization
    from veil.localization.judge import NoPose as NoPose
    from veil.localization.options import LocalizeOptions as LocalizeOptions
    from veil.localization.options import PositionOptions as PositionOptions
    from veil.localization.options import WordOptions as WordOptions
    from veil.mapping.points import NoMap as NoMap
    from veil.matching.lightglue import LightGlue as LightGlue
    from veil.matching.lightglue import LightGlueOptions as LightGlueOptions
    from veil.mechanisms.profile import Profile as Profile
    from veil.mechanisms.profile import hardened as hardened
    from veil.mechanisms.profile import paper as paper
    from veil.mechanisms.release import HideInLines as HideInLines
    from veil.pipelines.attacker import Attacker as Attacker
    from veil.pipelines.auditing import Audit as Audit
    from veil.pipelines.auditing import AuditOptions as AuditOptions
    from veil.pipelines.auditing import run_audit as run_audit
    from veil.pipelines.built_maps import BuiltMap as BuiltMap
    from veil.pipelines.built_maps import MappingOptions as MappingOptions
    from veil.pipelines.device import Device as Device
    from veil.pipelines.device import DeviceRelease as DeviceRelease
    from veil.pipelines.localization import localize as localize
    from veil.pipelines.mapping import map_images as map_images
    from veil.pipelines.maps import Map as Map
    from veil.pipelines.protection import HideInSubspaces as HideInSubspaces
    from veil.pipelines.protection import HideInWords as HideInWords
    from veil.pipelines.protection import Protection as Protection
    from veil.pipelines.protection import positions_alone as positions_alone
    from veil.pipelines.tiles import TileAnswer as TileAnswer
    from veil.pipelines.tiles import cut_map as cut_map
    from veil.pipelines.tiles import fetcher_of as fetcher_of
    from veil.pipelines.tiles import localize_with_tiles as localize_with_tiles
    from veil.pipelines.uploads import read_messages as read_messages
    from veil.tiles.cutting import CutOptions as CutOptions
    from veil.tiles.device import TileOptions as TileOptions
    from veil.wire.codec import decode as decode
    from veil.wire.codec import encode as encode
    from veil.wire.message import LineUpload as LineUpload
    from veil.wire.message import Upload as Upload

# The module of each public name; a test compares this table with the imports above, which are for type checkers.
_HOMES = {
    "ATTACKS": "attacks.registry",
    "Attack": "attacks.attack",
    "Attacker": "pipelines.attacker",
    "Audit": "pipelines.auditing",
    "AuditOptions": "pipelines.auditing",
    "Budget": "ldp.budget",
    "BuiltMap": "pipelines.built_maps",
    "Camera": "geometry.camera",
    "Client": "client.client",
    "Codebook": "codebooks.codebook",
    "ComputationalPrivacy": "ldp.guarantee",
    "CutOptions": "tiles.cutting",
    "DecoyPool": "codebooks.decoys",
    "DetectorOptions": "extraction.detection",
    "Device": "pipelines.device",
    "DeviceRelease": "pipelines.device",
    "Dictionary": "codebooks.dictionary",
    "Features": "features",
    "FileFormatError": "errors",
    "HideInLines": "mechanisms.release",
    "HideInSubspaces": "pipelines.protection",
    "HideInWords": "pipelines.protection",
    "InputError": "errors",
    "LightGlue": "matching.lightglue",
    "LightGlueOptions": "matching.lightglue",
    "LineUpload": "wire.message",
    "Lines": "forms",
    "LocalDP": "ldp.guarantee",
    "Localization": "localization.judge",
    "LocalizeOptions": "localization.options",
    "Map": "pipelines.maps",
    "MappingOptions": "pipelines.built_maps",
    "NoMap": "mapping.points",
    "NoPose": "localization.judge",
    "NoProof": "ldp.guarantee",
    "PerfectPrivacy": "ldp.guarantee",
    "Picture": "extraction.picture",
    "Points": "forms",
    "PositionOptions": "localization.options",
    "Profile": "mechanisms.profile",
    "Protection": "pipelines.protection",
    "ReleaseRefused": "errors",
    "Rigid": "geometry.rigid",
    "SiftOptions": "extraction.sift",
    "SpaceError": "errors",
    "Subsets": "forms",
    "Subspaces": "forms",
    "TileAnswer": "pipelines.tiles",
    "TileOptions": "tiles.device",
    "TileUse": "client.tile_use",
    "Upload": "wire.message",
    "VeilError": "errors",
    "WireError": "errors",
    "WordOptions": "localization.options",
    "cut_map": "pipelines.tiles",
    "decode": "wire.codec",
    "encode": "wire.codec",
    "extract": "extraction",
    "fetcher_of": "pipelines.tiles",
    "hardened": "mechanisms.profile",
    "load_lightglue": "files.weights",
    "localize": "pipelines.localization",
    "localize_with_tiles": "pipelines.tiles",
    "map_images": "pipelines.mapping",
    "open_tiles": "client.tile_access",
    "paper": "mechanisms.profile",
    "positions_alone": "pipelines.protection",
    "read_codebook": "files.codebooks",
    "read_features": "files.features",
    "read_gravity": "files.gravity",
    "read_messages": "pipelines.uploads",
    "read_picture": "files.pictures",
    "run_audit": "pipelines.auditing",
    "write_codebook": "files.codebooks",
    "write_features": "files.features",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """The public object called `name`, whose module is loaded when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'veil' has no attribute {name!r}; the public names are in veil.__all__")
    value = getattr(import_module(f"veil.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

# The public names of veil, each beside its module; a comment of one line begins a group of docs/reference/python.md.
# `veil/__init__.py` reads these lines, and type checkers read them in its place.

# Extract
from veil.files.photographs.pictures import read_picture as read_picture
from veil.extraction import extract as extract
from veil.files.features import read_features as read_features
from veil.files.features import write_features as write_features
from veil.device.gravity import measure_gravity as measure_gravity
from veil.files.photographs.gravity import read_gravity as read_gravity
from veil.files.photographs.gravity import write_gravity as write_gravity
from veil.extraction.picture import Picture as Picture
from veil.features import Features as Features
from veil.geometry.camera import Camera as Camera
from veil.geometry.camera import FocalPrior as FocalPrior
from veil.geometry.rigid import Rigid as Rigid
from veil.space import Space as Space
from veil.geometry.gravity import Gravity as Gravity
from veil.extraction.sift import SiftOptions as SiftOptions
from veil.extraction.detection import DetectorOptions as DetectorOptions
from veil.files.weights import load_network as load_network
from veil.files.photographs.examples import lund_door as lund_door

# Extract: answers
from veil.device.gravity import GravityAnswer as GravityAnswer
from veil.geometry.gravity_check import GravityCheck as GravityCheck
from veil.geometry.gravity import NoGravity as NoGravity
from veil.files.photographs.examples import ExamplePlace as ExamplePlace

# Privatize
from veil.device.device import Device as Device
from veil.device.protection import Protection as Protection
from veil.device.protection import HideInSubspaces as HideInSubspaces
from veil.device.protection import HideInWords as HideInWords
from veil.device.protection import usual_protection as usual_protection
from veil.mechanisms.release import HideInLines as HideInLines
from veil.mechanisms.release import HideInConvergentLines as HideInConvergentLines
from veil.mechanisms.release import HideInParallelLines as HideInParallelLines
from veil.mechanisms.profile import Profile as Profile
from veil.mechanisms.decoy_photographs import DecoyPhotographs as DecoyPhotographs
from veil.mechanisms.selection import Selection as Selection
from veil.mechanisms.selection import ChosenFeatures as ChosenFeatures
from veil.device.doors import select_for_map as select_for_map
from veil.ldp.mechanism import SubsetMechanism as SubsetMechanism
from veil.ldp.composition import composed_epsilon as composed_epsilon
from veil.ldp.planning import plan_release as plan_release
from veil.ldp.budget import Budget as Budget
from veil.files.device.ledger import Ledger as Ledger
from veil.wire.codec import encode as encode
from veil.wire.codec import decode as decode
from veil.wire.sequence import Sequence as Sequence
from veil.wire.sequence import encode_sequence as encode_sequence
from veil.wire.sequence import decode_sequence as decode_sequence
from veil.places.uploads import read_messages as read_messages

# Privatize: answers
from veil.device.device import DeviceRelease as DeviceRelease
from veil.device.device import SequenceRelease as SequenceRelease
from veil.files.device.ledger import Entry as Entry
from veil.ldp.budget import Charge as Charge
from veil.ldp.planning import ReleasePlan as ReleasePlan
from veil.wire.message import Message as Message
from veil.wire.message import Upload as Upload
from veil.wire.message import LineUpload as LineUpload
from veil.forms import Points as Points
from veil.forms import Subspaces as Subspaces
from veil.forms import Subsets as Subsets
from veil.forms import Lines as Lines
from veil.ldp.guarantee import LocalDP as LocalDP
from veil.ldp.guarantee import NoProof as NoProof
from veil.ldp.guarantee import ComputationalPrivacy as ComputationalPrivacy
from veil.ldp.guarantee import PerfectPrivacy as PerfectPrivacy

# Codebooks
from veil.files.codebooks import bundled_codebook as bundled_codebook
from veil.files.codebooks import read_codebook as read_codebook
from veil.files.codebooks import write_codebook as write_codebook
from veil.device.descriptor_books import build_codebook as build_codebook
from veil.codebooks.codebook import Codebook as Codebook
from veil.codebooks.dictionary import Dictionary as Dictionary
from veil.codebooks.decoys import DecoyPool as DecoyPool
from veil.codebooks.compression import Compression as Compression
from veil.codebooks.compression import Pca as Pca
from veil.codebooks.codebook import Provenance as Provenance

# Map
from veil.device.doors import map_images as map_images
from veil.device.importing import import_map as import_map
from veil.files.photographs.posed_models import read_model as read_model
from veil.places.held_map import Map as Map
from veil.places.built_maps import MappingOptions as MappingOptions
from veil.places.pairs.choice import PairChoice as PairChoice
from veil.device.doors import match as match
from veil.places.removal import remove_from_map as remove_from_map
from veil.places.unit_costs import plan_map as plan_map
from veil.device.viewing import view_map as view_map
from veil.report.viewer.content import ViewLimits as ViewLimits
from veil.files.maps.exports import export_map as export_map
from veil.places.held_map import align_map as align_map
from veil.files.maps.places import read_positions as read_positions
from veil.files.maps.places import read_place as read_place
from veil.files.maps.places import write_place as write_place
from veil.files.maps.query_poses import write_poses as write_poses
from veil.geometry.georeference import Georeference as Georeference
from veil.geometry.earth import EarthFrame as EarthFrame
from veil.geometry.similarity import Similarity as Similarity

# Map: answers
from veil.places.built_maps import BuiltMap as BuiltMap
from veil.device.importing import ImportedMap as ImportedMap
from veil.files.photographs.posed_models import PosedModel as PosedModel
from veil.files.photographs.posed_models import ModelImage as ModelImage
from veil.places.maps.points import NoMap as NoMap
from veil.scene import Scene as Scene
from veil.scene import MappedImage as MappedImage
from veil.scene import MapCheck as MapCheck
from veil.scene import ContradictedFocal as ContradictedFocal
from veil.scene import LineMapCheck as LineMapCheck
from veil.places.maps.check import ReadingsCheck as ReadingsCheck
from veil.matching.neighbors import Matches as Matches
from veil.places.maps.clusters.plans import MapPlan as MapPlan
from veil.places.removal import RemovalReceipt as RemovalReceipt
from veil.places.maps.removal import Removal as Removal
from veil.device.viewing import ViewedMap as ViewedMap

# Localize
from veil.device.doors import localize as localize
from veil.device.doors import localize_sequence as localize_sequence
from veil.places.poses.options import LocalizeOptions as LocalizeOptions
from veil.places.poses.options import WordOptions as WordOptions
from veil.places.poses.options import PositionOptions as PositionOptions
from veil.places.poses.options import UprightOptions as UprightOptions
from veil.matching.lightglue import LightGlue as LightGlue
from veil.files.weights import load_lightglue as load_lightglue

# Localize: answers
from veil.places.poses.answer import Localization as Localization
from veil.places.poses.sequences.answer import SequenceLocalization as SequenceLocalization
from veil.places.poses.answer import NoPose as NoPose

# In private tiles
from veil.places.tiles import cut_map as cut_map
from veil.tiles.cutting import CutOptions as CutOptions
from veil.places.tiles import plan_tiles as plan_tiles
from veil.client.tile_access import open_tiles as open_tiles
from veil.device.tiles import localize_with_tiles as localize_with_tiles
from veil.tiles.fetching import TileFetcher as TileFetcher

# In private tiles: answers
from veil.tiles.cutting import CutReport as CutReport
from veil.places.tiles import TilePlan as TilePlan
from veil.tiles.plans import ExitPlan as ExitPlan
from veil.device.tiles import TileAnswer as TileAnswer

# With a server
from veil.client.client import Client as Client
from veil.client.tile_use import TileUse as TileUse

# With a server: answers
from veil.client.answers import RemoteMap as RemoteMap
from veil.client.answers import RemotePose as RemotePose
from veil.client.answers import Accepted as Accepted
from veil.client.answers import JobStatus as JobStatus
from veil.wire.receipts import Receipt as Receipt

# Audit
from veil.device.auditing import run_audit as run_audit
from veil.device.auditing import AuditOptions as AuditOptions
from veil.device.attacker import Attacker as Attacker
from veil.audit.policy import Rule as Rule
from veil.attacks.registry import ATTACKS as ATTACKS
from veil.attacks.attack import Attack as Attack
from veil.device.inverting import invert as invert

# Audit: answers
from veil.audit.audit_result import Audit as Audit
from veil.attacks.time_budget import AuditTime as AuditTime
from veil.attacks.time_budget import AttackTime as AttackTime
from veil.audit.verdict import Verdict as Verdict
from veil.audit.finding import Finding as Finding
from veil.audit.finding import Score as Score
from veil.audit.finding import Share as Share
from veil.audit.epsilon import EpsilonBound as EpsilonBound
from veil.audit.on_pictures import DrawnPicture as DrawnPicture
from veil.audit.recovered import RecoveredFeatures as RecoveredFeatures

# Progress and errors
from veil.progress import Steps as Steps
from veil.errors import VeilError as VeilError
from veil.errors import InputError as InputError
from veil.errors import SpaceError as SpaceError
from veil.errors import WireError as WireError
from veil.errors import FileFormatError as FileFormatError
from veil.errors import ReleaseRefused as ReleaseRefused
from veil.errors import Remedy as Remedy

__version__: str
__all__: list[str]
_HOMES: dict[str, str]

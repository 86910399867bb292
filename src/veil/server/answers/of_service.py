"""Records of queries, tokens, tiles, and of the server itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from veil.json_records.values import Digest, Limits, PoseCovariance, PoseJson, SolvedCameraJson, Vector, Written
from veil.server.answers.of_maps import MapPolicyJson, ModelSizeJson, PlaceJson
from veil.server.answers.values import (
    Count,
    MapId,
    Printable,
    Quantity,
    RemediesJson,
    Scopes,
    Seconds,
    TokenId,
)

# Queries.


class CoverageJson(TypedDict):
    """Size of the map that answered."""

    models: list[ModelSizeJson]


class PoseEvidenceJson(TypedDict):
    """Evidence for a pose."""

    inliers: Count
    correspondences: Count
    log10_nfa: float | None


class PlaceErrorJson(TypedDict):
    """How far off the place of a map may be."""

    median: float
    largest: float


class _Earth(TypedDict, total=False):
    geopose: Annotated[Mapping[str, Any], Written(file="geopose.json", name="BasicQuaternion")]
    geopose_ypr: Annotated[Mapping[str, Any], Written(file="geopose.json", name="BasicYpr")]
    place_error_m: PlaceErrorJson


class LocalizedJson(_Earth):
    """A pose."""

    status: Literal["localized"]
    cam_from_world: PoseJson
    camera_center: Vector
    camera: SolvedCameraJson
    covariance: PoseCovariance | None
    turn_deviation_deg: float | None
    evidence: PoseEvidenceJson | None
    map: MapId
    map_version: Count
    coverage: CoverageJson
    features: Count
    seconds: float


class _Search(TypedDict, total=False):
    remedy: RemediesJson
    correspondences: Count
    features: Count
    seconds: float


class NoPoseJson(_Search):
    """No pose, and why."""

    status: Literal["no pose"]
    reason: str
    map: MapId
    map_version: Count
    coverage: CoverageJson


AnswerJson = LocalizedJson | NoPoseJson


# Tokens.


class _NewTokenLimits(TypedDict, total=False):
    maps: Annotated[list[Annotated[str, Limits(most_characters=200)]], Limits(most_items=1000)] | None
    requests_per_minute: Quantity
    bytes_per_day: Quantity


class NewTokenJson(_NewTokenLimits):
    """A token that is to be made."""

    name: Printable
    scopes: Annotated[Scopes, Limits(fewest_items=1)]


class TokenJson(TypedDict):
    """A token, without its secret."""

    token: TokenId
    name: str
    scopes: Scopes
    maps: list[str] | None
    requests_per_minute: Count
    bytes_per_day: Count
    created: Seconds
    revoked: Seconds | None


class TokensJson(TypedDict):
    """Tokens."""

    tokens: list[TokenJson]


class TokenMadeJson(TokenJson):
    """A token that was made just now."""

    secret: Annotated[str, Limits(pattern="^veil_[A-Za-z0-9_-]{43}$", description="told this once")]


class UsedJson(TypedDict):
    """Use of a token."""

    requests_this_minute: Count
    requests_today: Count
    bytes_today: Count


class UsageJson(TokenJson):
    """A token and its use."""

    used: UsedJson


# The server.


class AliveJson(TypedDict):
    """The process answers."""

    status: Literal["alive"]
    veil: str


class ReadyJson(TypedDict):
    """Whether queries are answered."""

    status: Literal["ready", "starting"]
    warnings: Annotated[list[str], Limits(description="What an administrator should know.")]


class FormPromiseJson(TypedDict):
    """The guarantee of a form."""

    guarantee: str | None
    reason: str | None


class FormPromisesJson(TypedDict):
    """The guarantee of each form."""

    subspaces: FormPromiseJson
    words: FormPromiseJson


class ServicePolicyJson(TypedDict):
    """What the service keeps and promises."""

    message_type: Literal["application/vnd.veil.message"]
    forms: FormPromisesJson
    not_protected: list[str]
    queries: str
    contributions: str
    logs: str
    default_map_policy: MapPolicyJson


class CameraJson(TypedDict):
    """The camera of a photograph."""

    model: str
    width_px: Count
    height_px: Count
    params: list[float]


class PhotographJson(TypedDict):
    """A photograph of the demo page."""

    name: str
    place: str
    camera: CameraJson | None


class PhotographsJson(TypedDict):
    """Photographs of the demo page."""

    photographs: list[PhotographJson]


# Tiles.


class RegionExitJson(TypedDict):
    """All records."""

    bytes: Count


class TwoServersExitJson(TypedDict):
    """Sizes of the exit by two servers."""

    query_bytes: Count
    answer_bytes: Count


class OneServerExitJson(TypedDict):
    """Facts of the exit by one server."""

    dimension: Count
    parts: Count
    seed: Digest
    hint_bytes: Count
    hint_sha256: Digest
    query_bytes: Count
    answer_bytes: Count


class HintlessExitJson(TypedDict):
    """Facts of the hintless exit."""

    degree: Count
    parts: Count
    seed: Digest
    query_bytes: Count
    answer_bytes: Count


_AllExits = TypedDict("_AllExits", {"region": RegionExitJson, "two-servers": TwoServersExitJson})
_SomeExits = TypedDict("_SomeExits", {"one-server": OneServerExitJson, "hintless": HintlessExitJson}, total=False)


class ExitsJson(_AllExits, _SomeExits):
    """The exits of a version of tiles."""


class TilesVersionJson(TypedDict):
    """A version of some tiles."""

    name: str
    version: Digest
    tiles: Count
    record_bytes: Count
    asked: Count
    exits: ExitsJson


class TilesJson(TypedDict):
    """All tiles of a server."""

    tiles: list[TilesVersionJson]


class DescriptorJson(TypedDict):
    """Descriptors of tiles."""

    kind: Annotated[str, Limits(fewest_characters=1, most_characters=32)]
    normalization: Literal["L2", "L1_ROOT"]
    dim: Count


class TilesManifestJson(TypedDict):
    """The JSON part of a manifest (`veil.tiles.manifest`)."""

    veil_tiles: Literal[1]
    tiles: Count
    tile_bytes: Count
    record_bytes: Count
    asked: Count
    merkle_root: Digest
    descriptor: DescriptorJson
    axes: Count
    bits: Literal[1, 2, 4, 8]
    step: float
    max_position_error: float
    least_pixels: float
    least_frames: float
    words: Count
    place: PlaceJson | None
    binary_sha256: Digest
    version: Digest

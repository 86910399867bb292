"""Records of maps, of jobs on them, and of what was given to them and deleted."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from veil.json_records.values import Digest, Limits, Matrix, PoseJson, Vector, Written
from veil.server.answers.values import (
    ContributionId,
    Count,
    JobId,
    MapId,
    Printable,
    Quantity,
    RemediesJson,
    Seconds,
    Share,
    TokenId,
)

# Maps.


class ModelSizeJson(TypedDict):
    """Size of one model of a map."""

    images: Count
    points: Count


class OriginJson(TypedDict):
    """Where on Earth the origin of a place is."""

    lat: Annotated[float, Limits(minimum=-90, maximum=90)]
    lon: Annotated[float, Limits(minimum=-360, maximum=360)]
    h: float


class SimilarityJson(TypedDict):
    """East, north and up from the map."""

    scale: Annotated[float, Limits(above=0)]
    rotation: Matrix
    translation: Vector


class PlaceJson(TypedDict):
    """Where on Earth a map is."""

    place: Literal[1]
    origin: OriginJson
    enu_from_map: SimilarityJson
    positions: Annotated[int, Limits(minimum=1, maximum=16777215)]
    agreeing: Annotated[int, Limits(minimum=1, maximum=16777215)]
    median_error_m: float
    largest_error_m: float
    uses_gravity: bool


class MapPolicyJson(TypedDict):
    """What a map accepts (`veil.server.maps.policy.MapPolicy`)."""

    forms: Annotated[list[Literal["subspaces", "words"]], Limits(fewest_items=1)]
    least_profile: Literal["hardened", "any"]
    max_epsilon: Annotated[float, Limits(minimum=0, maximum=365250)] | None
    lines_only: bool
    max_features: Annotated[int, Limits(minimum=1, maximum=131072)]
    max_bytes: Annotated[int, Limits(minimum=107, maximum=268435456)]
    max_contributions_of_token: Quantity | None
    max_share_of_token: Annotated[float, Limits(above=0, maximum=1)] | None
    keep_days: Annotated[float, Limits(minimum=0, maximum=365250)] | None
    largest_object: Annotated[float, Limits(above=0, maximum=1)] | None


class _NewMapPolicy(TypedDict, total=False):
    policy: Annotated[MapPolicyJson, Written(file="maps.json", name="NewMapPolicy")]


class NewMapJson(_NewMapPolicy):
    """A map that is to be made."""

    name: Printable


class _MapFacts(TypedDict, total=False):
    models: list[ModelSizeJson]
    public: bool
    words: bool
    gravity: bool
    dictionaries: list[Digest]
    mean_reprojection_error_px: float | None
    place: PlaceJson


class MapJson(_MapFacts):
    """A map, with the facts of its images once it has some."""

    map: MapId
    name: str
    created: Seconds
    version: Count
    mapped: bool
    policy: MapPolicyJson


class MapsJson(TypedDict):
    """Maps."""

    maps: list[MapJson]


class MapViewJson(TypedDict):
    """A sample of a public map, for a picture."""

    map: MapId
    map_version: Count
    points: Annotated[list[Vector], Limits(most_items=4000)]
    all_points: Count
    cameras: Annotated[list[PoseJson], Limits(most_items=200)]
    all_cameras: Count


# Jobs.


class ProgressJson(TypedDict):
    """Progress of a job."""

    step: str
    done: Count
    total: Count


class JobResultJson(TypedDict, total=False):
    """Result of a job."""

    reason: str
    remedy: RemediesJson
    mapped: Count
    left_out: Count
    version: Count
    moved: float


class JobJson(TypedDict):
    """Work on a map."""

    job: JobId
    map: MapId
    kind: Literal["update", "rebuild", "remove"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: ProgressJson
    result: JobResultJson
    created: Seconds
    ended: Seconds | None


class JobsJson(TypedDict):
    """Jobs."""

    jobs: list[JobJson]


# Receipts.


class _Removed(TypedDict, total=False):
    features: Count
    points: Count
    features_of_others: Count
    kept_pairs: Count | None
    map_versions: Annotated[list[Count], Limits(fewest_items=2, most_items=2)]


class ReceiptContentJson(_Removed):
    """What was deleted, when and by whose token, with what its removal took out of a map."""

    contribution: ContributionId
    map: MapId
    message_sha256: Digest
    bytes: Count
    received: Seconds
    deleted: Seconds
    token: Annotated[str, Limits(pattern="^(t[0-9a-f]{16})?$")]
    why: str
    nonce: Annotated[str, Limits(pattern="^[0-9a-f]{32}$")]


class ReceiptJson(TypedDict):
    """One deletion in the chain (`veil.wire.receipts.Receipt`)."""

    number: Annotated[int, Limits(minimum=1)]
    content: ReceiptContentJson
    before: Digest
    digest: Digest


class ReceiptChainJson(TypedDict):
    """Number and digests of receipts."""

    links: list[
        Annotated[
            list[Annotated[int, Limits(minimum=1)] | Digest],
            Limits(fewest_items=3, most_items=3, description="number, digest of the content, digest"),
        ]
    ]


class MapDeletedJson(TypedDict):
    """Receipts of all contributions to a map."""

    receipts: list[ReceiptJson]


# Contributions.


class _Given(TypedDict):
    contribution: ContributionId
    map: MapId
    message_sha256: Digest
    bytes: Count
    reason: str
    received: Seconds
    expires: Seconds | None


class MessageContentJson(TypedDict, total=False):
    """What a message contains."""

    form: Literal["subspaces", "words"]
    profile: str | None
    epsilon: float | None
    positions: Literal["positions", "lines"]
    features: Count
    guarantee: str | None
    degenerate: list[str]


class GivenMessageJson(_Given, MessageContentJson):
    """A message that was given to a map, whatever became of it."""


class ContributionJson(GivenMessageJson):
    """A message that was given to a map."""

    state: Literal["pending", "mapped", "left out", "leaving"]


class ContributionsJson(TypedDict):
    """Contributions."""

    contributions: list[ContributionJson]


class ContributionGivenJson(ContributionJson):
    """A contribution that was given just now."""

    job: JobId | None
    receipts_head: Digest


class ContributionDeletedJson(TypedDict):
    """A contribution that is gone."""

    receipt: ReceiptJson
    job: None


class ContributionLeavingJson(TypedDict):
    """A contribution that a job takes out of its map."""

    receipt: None
    job: JobId | None


class EvidenceJson(TypedDict, total=False):
    """What a map says of a contribution."""

    model: int | None
    observed: Count
    confirmed: Count
    others: Count
    own: Count
    alone: bool
    repeats_own: float
    repeats_others: float
    unexplained: float


class ReasonJson(TypedDict):
    """Why a contribution is suspect."""

    reason: Literal["degenerate", "left out", "unexplained", "alone", "repeats own", "repeats others"]
    told: str


class SuspectJson(GivenMessageJson):
    """A contribution that something speaks against."""

    state: Literal["pending", "mapped", "left out"]
    token: TokenId
    weight: Share | None
    evidence: EvidenceJson
    reasons: Annotated[list[ReasonJson], Limits(fewest_items=1)]


class TokenShareJson(TypedDict):
    """How much of a map one token gave."""

    token: TokenId
    contributions: Count
    mapped: Count
    observed: Count
    suspects: Count
    share: Share


class SuspectsJson(TypedDict):
    """Suspect contributions to a map."""

    map: MapId
    contributions: Count
    tokens: list[TokenShareJson]
    suspects: list[SuspectJson]

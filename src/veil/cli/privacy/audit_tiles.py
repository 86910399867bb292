"""`veil audit TILES/`: what publishing a map's tiles shows, in numbers, and in pictures beside photographs of the place."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from veil.audit.tile_findings import STATEMENT, ShownView, TileAudit, TileAuditJson
from veil.cli.common import EXIT_OK, Arguments, Bar, report, say, tell_skipped, write_json
from veil.cli.privacy.originals import Originals, read_place_photographs
from veil.cli.remedies import phrase
from veil.device.tile_audit import audit_tiles
from veil.errors import InputError
from veil.files.atomic import write_text
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.tiles import read_manifest
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import Inverts
from veil.json_records.values import Reasons
from veil.report.tile_audit import page

# Options of an attacker on uploads, of which tiles need none: they are read as they are.
FOR_UPLOADS = (
    *("against", "place_photographs", "map", "codebook", "decoys", "secret_decoys", "database", "attack_model", "attacker"),
    *("only", "attacked_features", "fail_on", "policy"),
)


class AuditTilesJson(TileAuditJson):
    """An audit of tiles, and why photographs were left out."""

    skipped: Reasons


def audited_tiles(arguments: Arguments) -> int:
    """Audit the folder of tiles that the arguments name; exit code 0."""
    start = time.perf_counter()
    if given := [name for name in FOR_UPLOADS if getattr(arguments, name)]:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise InputError(f"{arguments.release} holds tiles, which anyone can read: leave out {options}, which is for uploads")
    originals, skipped = None, dict[str, str]()
    if arguments.images:
        space = read_manifest(arguments.release).coding.raw_space
        originals = read_place_photographs(arguments.images, space, skipped, strict=arguments.strict)
        tell_skipped(skipped)
    with Bar("looking at tiles") as bar:
        audit = audit_tiles(
            arguments.release,
            photographs=None if originals is None else originals.features,
            network=_network(arguments),
            read_photograph=lambda name: _photograph(originals, name),
            pictured=arguments.pictures,
            progress=bar,
        )
    write_text(arguments.output, page(audit, seconds=time.perf_counter() - start, say=phrase))
    record: AuditTilesJson = {**audit.as_json(), "skipped": skipped}
    write_json(arguments.json, record)
    for line in described(audit):
        say(arguments, line)
    report(arguments, arguments.output, "the report")
    return EXIT_OK


def _photograph(originals: Originals | None, name: str):  # type: ignore[no-untyped-def]
    """The pixels of a photograph, if it was given itself."""
    return originals.read_rgb(name) if originals is not None and name in originals.paths else None


def _network(arguments: Arguments) -> Inverts | None:
    """The inversion network for raw SIFT: the last such one of --inverter, else the bundled one; None without pictures."""
    if not arguments.pictures:
        return None
    given = [weights for weights in map(read_weights, arguments.inverter) if weights.kind == "raw"]
    return PlainInverter(given[-1] if given else bundled_inverter())


def described(audit: TileAudit) -> Iterator[str]:
    """Numbers of the tiles, as lines for people."""
    manifest, coding = audit.manifest, audit.manifest.coding
    yield (
        f"{len(manifest)} tiles, {len(manifest) * manifest.record_bytes} bytes and {audit.manifest_bytes} of the manifest: "
        f"{audit.points} points with {audit.aspects} descriptors of {coding.axes} axes with {coding.bits} bits"
    )
    yield (
        f"places are known within {coding.max_position_error:.3g} units of the map; rounding moves a descriptor by "
        f"{audit.rounding:.3f} (two random ones are about 1 apart)"
    )
    for shown in audit.views:
        yield from _described_view(shown)
    yield from _medians(audit)
    for name, why in audit.no_pose.items():
        yield f"{name}: no pose in the tiles: {why}"
    yield STATEMENT


def _medians(audit: TileAudit) -> Iterator[str]:
    """The medians of several photographs."""
    errors = [shown.view.errors for shown in audit.views if shown.view.errors is not None]
    if len(errors) > 1:
        distances = [item.median for item in errors if item.median is not None]
        yield (
            f"median of {len(errors)} photographs: compression moves descriptors by "
            f"{np.median([item.compression for item in errors]):.3f}, the tiles' lie at {np.median(distances):.3f}"
        )
    for source in ("tiles", "raw features"):
        drawn = [item.quality for shown in audit.views for item in shown.pictures if item.source == source]
        measured = [item for item in drawn if item is not None]
        if len(measured) > 1:
            yield f"median of {len(measured)} pictures from {source}: ssim {np.median([item.ssim for item in measured]):.3f}"


def _described_view(shown: ShownView) -> Iterator[str]:
    """Result of one view of the tiles."""
    view, errors = shown.view, shown.view.errors
    tiles = ", ".join(map(str, view.tiles))
    yield f"{view.name}: {len(view)} of {view.points} points of the tiles {tiles} are in the picture"
    if errors is not None:
        near, close = (100 * count / max(errors.matched, 1) for count in errors.within)
        yield (
            f"  descriptors: compression moves them by {errors.compression:.3f}; of {errors.matched} that see a point of the "
            f"tiles, these hold {near:.1f} % within 0.1, {close:.1f} % within 0.4, and the median at {errors.median or 0.0:.3f}"
        )
    for picture in shown.pictures:
        text = f"  picture from {picture.source}, {picture.features} features"
        if picture.quality is not None:
            measured = picture.quality
            text += f": ssim {measured.ssim:.3f}, psnr {measured.psnr:.1f} dB, mae {measured.mae:.3f}"
        yield text

"""The HTML page of an audit of tiles: what publishing them shows of the place."""

from __future__ import annotations

from veil.audit.tile_findings import STATEMENT, ShownView, TileAudit
from veil.errors import Remedy, Say
from veil.inversion.maps import Frame
from veil.report import pictures
from veil.report.page_templates import page_template
from veil.version import __version__

NOT_SHOWN = (
    "larger networks, and ones that read a point's place in space beside its descriptor: they draw better pictures",
    "what can be read without a picture: signs and shops by their descriptors, or which images of elsewhere show the place",
    "colors and whatever else the tiles do not hold: a network guesses them",
)


def page(audit: TileAudit, *, seconds: float, say: Say = str) -> str:
    """The self-contained HTML page of an audit of tiles; nothing in it is fetched.

    `seconds` is the wall time of the audit. `say` turns a remedy into a phrase.
    """
    return page_template("tile_audit.html").render(
        version=__version__,
        statement=STATEMENT,
        best=_best(audit),
        facts=_facts(audit),
        views=[_view(shown) for shown in audit.views],
        pictured=[{"name": shown.view.name, "pictures": _pictures(shown)} for shown in audit.views if shown.pictures],
        originals=say(Remedy("give", "audit_tiles.photographs")),
        with_photographs=any(shown.view.errors for shown in audit.views),
        no_pose=audit.no_pose,
        not_shown=NOT_SHOWN,
        seconds=f"{seconds:.0f}",
    )


def _best(audit: TileAudit) -> str:
    """The sentence about the picture from tiles that is most like its photograph; empty without photographs."""
    measured = [
        (picture.quality.ssim, shown.view.name, beside)
        for shown in audit.views
        for picture in shown.pictures
        if picture.source == "tiles" and picture.quality is not None
        for beside in [next((p.quality.ssim for p in shown.pictures if p.source != "tiles" and p.quality), None)]
    ]
    if not measured:
        return ""
    ssim, name, raw = max(measured)
    beside = "" if raw is None else f"; the photograph's own raw features give one with {raw:.2f}"
    return f"The picture that tiles give of {name} has a structural similarity (SSIM) of {ssim:.2f} to the photograph{beside}."


def _facts(audit: TileAudit) -> list[tuple[str, str]]:
    """Rows of the page about all tiles."""
    manifest = audit.manifest
    coding = manifest.coding
    place = "not in the manifest" if manifest.place is None else "in the manifest"
    return [
        ("tiles", f"{len(manifest):,} of {manifest.tile_bytes:,} bytes"),
        ("all tiles with proofs", f"{len(manifest) * manifest.record_bytes:,} bytes"),
        ("manifest", f"{audit.manifest_bytes:,} bytes: cells, principal axes, sketches"),
        ("points", f"{audit.points:,} with {audit.aspects:,} descriptors, counted once for each tile"),
        ("places", f"within {coding.max_position_error:.3g} units of the map"),
        ("descriptors", f"{coding.raw_space}, {coding.axes} principal axes of {coding.bits} bits"),
        ("rounding", f"moves a descriptor by {audit.rounding:.3f} (two random ones are about 1 apart)"),
        ("place on Earth", place),
        ("version", manifest.version),
    ]


def _pictures(shown: ShownView) -> list[tuple[str, str]]:
    """Titles and data URIs of a view's pictures: the photograph, what was drawn, and where the points are."""
    view = shown.view
    titled: list[tuple[str, str]] = []
    if shown.photograph is not None:
        crop = Frame(width=view.camera.width_px, height=view.camera.height_px).crop(shown.photograph)
        titled.append(("the photograph", pictures.photograph(crop)))
    for picture in sorted(shown.pictures, key=lambda item: item.source):
        measured = "" if picture.quality is None else f", SSIM {picture.quality.ssim:.2f} to the photograph"
        source = "the tiles" if picture.source == "tiles" else "the photograph's own raw features"
        titled.append((f"drawn from {source} ({picture.features:,} features{measured})", pictures.photograph(picture.rgb)))
    places = pictures.server_view(view.camera.width_px, view.camera.height_px, view.keypoints)
    return [*titled, (f"where the {len(view):,} points lie that this camera sees", places)]


def _view(shown: ShownView) -> dict:
    """Texts of one view in the table."""
    view, errors = shown.view, shown.view.errors
    row: dict = {
        "name": view.name,
        "tiles": ", ".join(map(str, view.tiles)),
        "points": f"{view.points:,}",
        "seen": f"{len(view):,}",
        "errors": None,
    }
    if errors is not None:
        row["errors"] = {
            "features": f"{errors.features:,}",
            "matched": f"{errors.matched:,}",
            "compression": f"{errors.compression:.3f}",
            "median": "none" if errors.median is None else f"{errors.median:.3f}",
            "near": f"{100 * errors.within[0] / max(errors.matched, 1):.1f} %",
            "close": f"{100 * errors.within[1] / max(errors.matched, 1):.1f} %",
        }
    return row

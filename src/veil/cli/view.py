"""`veil view`: a map or an audit as one HTML page, or as a file for other viewers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from veil.cli.common import (
    EXIT_OK,
    Bar,
    at_least,
    quiet_colmap,
    report,
    say,
    tell_skipped,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.remedies import phrase
from veil.device.viewing import ViewedMap, told_further, view_audit, view_map, view_of
from veil.errors import InputError
from veil.files.atomic import write_text
from veil.files.audit_pages import is_audit_page
from veil.files.maps.exports import GRAY, export_map
from veil.files.maps.folders import model_folders
from veil.json_records.values import Reasons
from veil.places.held_map import Map
from veil.report.viewer.content import View, ViewLimits
from veil.report.viewer.packing import photograph_colors
from veil.report.viewer.page import Page, page

DEFAULTS = {"ply": "map.ply", "gltf": "map.glb", "colmap": "map-colmap"}

EXAMPLES = """\
  veil view map/                                              view.html: what the server of the map sees
  veil view map/ --queries queries/*.veil                     with queries, localized now, their uncertainty and matches
  veil view map/ --queries poses.json                         with poses of `veil localize --json`
  veil view map/ --images photos/ features.h5                 and what the device knows: the page then holds photographs
  veil view map/ --report audit.html                          and pictures that attacks drew, of `veil audit -o audit.html`
  veil view map/ --invert 12                                  a public map: pictures that its raw descriptors give away
  veil view audit.html                                        an audit alone: three views of each picture
  veil view map/ --export ply -o map.ply                      for MeshLab, CloudCompare, Blender; gltf and colmap likewise
"""


@dataclass(frozen=True, kw_only=True)
class ViewCommand(Record):
    """Write one self-contained HTML page (WebGL2; nothing is fetched, and its policy forbids it): points, cameras,
    queries, matches, lines and planes, with a switch between what the device knows, what the server sees and what an
    attack gets back. The page holds what the server of the map sees, without any descriptor; photographs and true
    keypoints enter with --images alone, pictures of attacks with --report or --invert, and the page says so.
    """

    map: Path = positional("a folder that `veil map` wrote, or an audit's page", metavar="MAP|REPORT")
    output: Path | None = option(
        "what to write (default view.html, or map.ply, map.glb, or a folder map-colmap)", short="-o", metavar="PATH"
    )
    queries: tuple[Path, ...] = option(
        "messages (.veil, or folders of them), localized now, or JSON of `veil localize`", default=(), metavar="PATH"
    )
    images: tuple[Path, ...] = option("photographs and features.h5: they enter the page", default=(), metavar="PATH")
    report: Path | None = option("page of `veil audit`, for the pictures that attacks drew", metavar="HTML")
    invert: int = option(
        "number of images of a public map to invert, which show what its raw descriptors give away",
        default=0,
        parse=at_least(0),
        metavar="N",
    )
    export: Literal["ply", "gltf", "colmap"] | None = option("write this in place of a page; colors come with --images")
    title: str | None = option("title of the page (default: the name of the map's folder)")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil view` to the parser's commands."""
    summary = "a map or an audit as one HTML page, or as PLY, glTF or a COLMAP model"
    add_record_command(commands, "view", summary, EXAMPLES, ViewCommand, _view)


def _view(arguments: ViewCommand) -> int:
    quiet_colmap()
    if is_audit_page(arguments.map):
        _refuse_for_audits(arguments)
        _write(arguments, page(view_audit(arguments.map), ViewLimits(), say=phrase), None)
        return EXIT_OK
    where = Map.read(arguments.map)
    further = model_folders(arguments.map)[1:]
    title = arguments.title or arguments.map.resolve().name
    viewed = view_map(
        where,
        title=title,
        queries=arguments.queries,
        device=arguments.images,
        report=arguments.report,
        invert=arguments.invert,
        further=further,
        steps=Bar,
    )
    tell_skipped(viewed.skipped)
    for name, reason in viewed.refused.items():
        say(arguments, f"{name}: no pose: {reason}")
    if further:
        others = " to ".join(str(model) for model in dict.fromkeys((further[0], further[-1])))
        say(arguments, f"{told_further(further)}: veil view {others}")
    if arguments.export:
        _export(arguments, where, view_of(viewed))
    else:
        _write(arguments, page(view_of(viewed), ViewLimits(), say=phrase), viewed)
    return EXIT_OK


def _refuse_for_audits(arguments: ViewCommand) -> None:
    """Raise InputError for options that need a map, where the input is the page of an audit."""
    for name in ("queries", "images", "report", "invert", "export"):
        if getattr(arguments, name):
            raise InputError(
                f"--{name} goes with a map, and {arguments.map} is an audit: veil view MAP --report {arguments.map}"
            )


class ViewPageJson(TypedDict):
    """A page for browsers."""

    output: str
    format: Literal["html"]
    bytes: int
    points: int
    all_points: int
    not_finite: int
    error: float
    images: int
    all_images: int
    sightings: int
    sightings_left_out: int
    queries: int
    photographs: int
    true_positions: int
    recovered: int
    refused: Reasons
    skipped: Reasons


class ViewExportJson(TypedDict):
    """A map for other viewers."""

    output: str
    format: Literal["ply", "gltf", "colmap"]
    points: int
    images: int
    colored: int


def _write(arguments: ViewCommand, made: Page, viewed: ViewedMap | None) -> None:
    """Write the page, and tell what it holds; `viewed` is None for an audit."""
    output = arguments.output or Path("view.html")
    write_text(output, made.html, private=made.photographs > 0 or made.true_positions > 0)
    queries = 0 if viewed is None else sum(image.is_query for image in view_of(viewed).images)
    size = len(made.html.encode())
    record: ViewPageJson = {
        "output": str(output),
        "format": "html",
        "bytes": size,
        "points": made.points,
        "all_points": made.all_points,
        "not_finite": made.not_finite,
        "error": made.error,
        "images": made.images,
        "all_images": made.all_images,
        "sightings": made.sightings,
        "sightings_left_out": made.sightings_left_out,
        "queries": queries,
        "photographs": made.photographs,
        "true_positions": made.true_positions,
        "recovered": made.recovered,
        "refused": {} if viewed is None else dict(viewed.refused),
        "skipped": {} if viewed is None else dict(viewed.skipped),
    }
    write_json(arguments.json, record)
    say(arguments, f"{made.points:,} of {made.all_points:,} points (within {made.error:.1g} units), {made.images:,} images")
    if made.photographs or made.true_positions:
        contents = f"{made.photographs} photographs, and true positions of {made.true_positions} images"
        say(arguments, f"the page holds {contents}: keep it where the photographs may be")
    report(arguments, output, f"a page of {size / 1e6:.1f} MB")


def _export(arguments: ViewCommand, where: Map, view: View) -> None:
    """Write the map for other viewers, in the colors of the photographs where they were given."""
    assert arguments.export is not None
    output = arguments.output or Path(DEFAULTS[arguments.export])
    colors = photograph_colors(view)
    gray = np.array(GRAY, dtype=np.uint8)
    rgb = np.where(colors[:, 3:] > 0, colors[:, :3], gray) if colors[:, 3].any() else None
    export_map(output, where.scene, arguments.export, rgb)
    record: ViewExportJson = {
        "output": str(output),
        "format": arguments.export,
        "points": len(where.scene.points),
        "images": len(where.scene.images),
        "colored": int((colors[:, 3] > 0).sum()),
    }
    write_json(arguments.json, record)
    report(arguments, output, f"{record['points']:,} points and {record['images']:,} cameras")

"""The files of the demo page, which ship with the package."""

from __future__ import annotations

from importlib.resources import as_file, files


def page_files() -> dict[str, bytes]:
    """Contents of the page's files by their path below its folder, with slashes: few and small enough to be kept in memory."""
    with as_file(files("veil") / "server" / "static") as folder:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

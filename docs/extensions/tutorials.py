"""Tutorials run when the site is built: the `sh` blocks of a page in one shell, each with its output below it.

What should not run, such as an installation, stands in a block of another language (`shell`).
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = "docs/tutorials/"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "-- the end of a block --"
SECONDS = 300
# The address of `veil serve`; each run has a port of its own, so that it needs none that somebody else may use.
PORT = "8700"


def outputs(blocks: list[str]) -> list[str]:
    """What each block of commands prints, all run by one shell in a new folder, as a user without photographs starts there.

    Raises ExtensionError with the output if a command fails.
    """
    port = _free_port()
    script = "".join(f"{block}echo '{MARK}'\n" for block in blocks).replace(f":{PORT}", f":{port}")
    with tempfile.TemporaryDirectory(prefix="veil-tutorial-") as name:
        folder = Path(name)
        for program, words in (("veil", "-m veil.cli"), ("python", "")):
            place = folder / "bin" / program
            place.parent.mkdir(exist_ok=True)
            place.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
            place.chmod(0o755)
        (folder / "photos-of-mine").mkdir()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}"],
            cwd=folder / "photos-of-mine",
            env=_environment(folder, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        printed = done.stdout.replace(f"{folder}/photos-of-mine/", "").replace(f"{folder}/home", "~/.local/share/veil")
    if done.returncode:
        raise ExtensionError(f"a command of the tutorial failed with exit code {done.returncode}:\n{printed}")
    parts = printed.replace(f":{port}", f":{PORT}").split(f"{MARK}\n")
    return [part.strip("\n") for part in parts][: len(blocks)]


def _free_port() -> str:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return str(door.getsockname()[1])


def _environment(folder: Path, port: str) -> dict[str, str]:
    own = {
        "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "VEIL_HOME": str(folder / "home"),
        "VEIL_SERVE_PORT": port,
        "COLUMNS": "80",
    }
    return {**os.environ, **own}


def with_outputs(text: str) -> str:
    """A page with the output of each of its blocks below it."""
    printed = iter(outputs(BLOCK.findall(text)))

    def shown(block: re.Match[str]) -> str:
        output = next(printed)
        return f"{block[0]}\n\n```{{code-block}} text\n:class: output\n\n{output}\n```" if output else block[0]

    return BLOCK.sub(shown, text)


def run(app: Sphinx, docname: str, source: list[str]) -> None:
    """Run the commands of a tutorial (the event `source-read`)."""
    if docname.startswith(TUTORIALS) and app.config.run_tutorials and BLOCK.search(source[0]):
        source[0] = with_outputs(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event, and the setting `run_tutorials` (`-D run_tutorials=0` shows them without output, in less time)."""
    app.add_config_value("run_tutorials", True, "env", bool)
    app.connect("source-read", run)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

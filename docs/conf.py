"""Settings of Sphinx for the documentation site: `.ci/docs` builds it, or the one command in docs/development.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# COLMAP keeps quiet in the output of examples.
os.environ["GLOG_minloglevel"] = "2"  # noqa: SIM112 (its name)
sys.path[:0] = [str(ROOT / folder) for folder in ("docs", "src", "lab", "faces")]

import veil  # noqa: E402
from extensions.files import source_of as linkcode_resolve  # noqa: E402, F401 (linkcode looks for it here)

project = "veil"
author = "The veil developers"
copyright = "The veil developers, Apache-2.0"
release = version = veil.__version__

# Pages lie where their links expect them, so the repository is the source: docs/, and the pages about the project.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "docs/gallery/**.rst", "*.md", "lab/**.md", "faces/**.md", "clients/typescript/README.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "src",
    "tests",
    "lab/tests",
    "faces/tests",
    "deploy",
    "examples",
    "veil-demo",
    "**/node_modules",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "extensions.mathematics",
    "extensions.docstrings",
    "extensions.navigation",
    "extensions.results",
    "extensions.sources",
    "extensions.tutorials",
]

myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 5
myst_dmath_double_inline = True
default_role = "code"
# Two hyphens are those of an option or an anchor.
smartquotes = False
# Excerpts of JSON with dots for what was left out are shown all the same.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
add_module_names = False
maximum_signature_line_length = 88

bibtex_bibfiles = ["bibliography.bib"]
bibtex_default_style = "plain"

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"camera\.py$",  # it asks a server, and looks through a webcam
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "within_subsection_order": "extensions.examples.InOrder",
}

html_theme = "furo"
html_title = "veil"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["veil.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = "$ "

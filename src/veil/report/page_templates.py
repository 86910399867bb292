"""Templates of HTML pages, which escape all text, and fail where a name in them is not given."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def page_template(name: str, *, package: str = "veil.report") -> jinja2.Template:
    """The template `name` of the folder `templates/` of a package. Raises FileNotFoundError if there is none."""
    import jinja2

    folder = files(package) / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda file: (folder / file).read_text()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)

"""Print the oldest versions that pyproject.toml admits, one `name==version` a line, as pip reads them.

    python .ci/minima.py pyproject.toml [EXTRA ...]

Runs on the Python 3.10 of a fresh virtual environment: what it needs beyond the standard library lies in pip.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib


def main(path: str, *extras: str) -> int:
    """Exit code 1 where a requirement has no single lower bound: what is oldest would be left to chance."""
    project = tomllib.loads(Path(path).read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    floors: dict[str, str] = {}
    for line in lines:
        requirement = Requirement(line)
        bounds = [each.version for each in requirement.specifier if each.operator == ">="]
        if len(bounds) != 1 or floors.setdefault(requirement.name, bounds[0]) != bounds[0]:
            print(f"{line!r}: each requirement needs one lower bound, the same wherever it is named", file=sys.stderr)
            return 1
    print("\n".join(f"{name}=={version}" for name, version in sorted(floors.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Print the oldest versions that one or more pyproject.toml admit, one `name==version` a line, as pip reads them.

    python .ci/minima.py pyproject.toml [MORE.toml ...] [EXTRA ...]

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


def main(*words: str) -> int:
    """Exit code 1 where a requirement has no single lower bound: what is oldest would be left to chance.

    Words that end in .toml are files of projects, which are left out among what they need; the others are extras, of the first.
    """
    projects = [tomllib.loads(Path(word).read_text())["project"] for word in words if word.endswith(".toml")]
    lines = [line for project in projects for line in project["dependencies"]]
    extras = [word for word in words if not word.endswith(".toml")]
    lines += [line for extra in extras for line in projects[0]["optional-dependencies"][extra]]
    own = {project["name"] for project in projects}
    floors: dict[str, str] = {}
    for line in lines:
        requirement = Requirement(line)
        if requirement.name in own:
            continue
        bounds = [each.version for each in requirement.specifier if each.operator == ">="]
        if len(bounds) != 1 or floors.setdefault(requirement.name, bounds[0]) != bounds[0]:
            print(f"{line!r}: each requirement needs one lower bound, the same wherever it is named", file=sys.stderr)
            return 1
    print("\n".join(f"{name}=={version}" for name, version in sorted(floors.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Attacks: each sees only what an attacker sees.

- `attack`, `target` and `claims`: types of an attack, of what it is given, and of what it claims.
- `registry`: the list of every attack, from `on_subspaces` (with those of `learned`), `on_lines`, `on_positions` and
  `on_words`, which say what each assumes. The one on faces, which never applies to a place, stands in `registry` itself.
- `answered_objects`: the attack through a map's answers, which looks at no release.
- `time_budget`: the processor time of each. `pieces`: answers of an attack that ran piece by piece.

One attack a file, in folders by what it exploits: `structural/`, `distribution/`, `intersection/`, `matches/`, `words/` and
`positions/`.
"""

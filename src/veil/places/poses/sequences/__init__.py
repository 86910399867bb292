"""Localization of several frames whose motions are known: one pose of the rig, one evidence (docs/theory/sequences.md).

- `frames`: cameras and motions, and pairs of features of all frames with points of a map. `claims`: what the judge asks.
- `by_distance`: raw features and subspaces. `upright`: words and positions with gravity; `upright_problem`: their search.
- `by_words`: candidates of all
  frames, and the mirror's test. `answer`: poses of rig and frames.
"""

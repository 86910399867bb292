"""Poses from matches of which some are wrong: RANSAC, the number of false alarms, and what an accepted pose must show.

- `ransac` is the general loop. `grouped` is its like for candidates of words, compiled in `grouped_search`.
- `line_search` and `upright_search` search with gravity, `rig_search` for several frames. `resection_lines` finds a camera
  from lines.
- `pose_and_focal` fits a pose and its focal length together, and says how far both are known.
- `significance` counts false alarms of a pose, `two_view` those of a pair of images; `turns` finds pairs of one standpoint.
- `acceptance` has the thresholds.
"""

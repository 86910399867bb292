"""Localization of queries in words, subspaces, lines or public descriptors against a map.

- `options`: of all kinds of queries. `answer`: a pose, or a reason for none. `judge`: which of both is told, and
  rivals: other poses that explain as much.
- `by_distance`: public descriptors and subspaces. `by_words`: words. `upright`: keypoints with gravity, in words or alone.
- `matches`: pairs of features and points, and poses from them. `joint`: fits of pose and focal length together. `word_points`,
  `word_lines`: candidates of words in place of pairs. `upright_problem`: all keypoints in their place.
- `evidence`: what chance and a camera say of a pose.
- `mirror`: queries turned over, and the refusal of those that fit better so.
- `search`: the images of a map that are matched, and those that a pose is compared with.
"""

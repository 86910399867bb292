"""Maps on disk.

- `format` reads and writes a map, `folders` puts one in the place of another, `exports` writes maps for other viewers.
- `indexes` by words and by distance lie in the folder of a map. `places` are positions on
  Earth, and `query_poses` poses as hloc writes them.
- Unfinished runs: `checkpoints` of long mapping, and `cluster_results`.
"""

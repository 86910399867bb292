"""Work of the service: which jobs wait, and what its processes run.

- `queue`: records of jobs on maps.
- `processes`: processes that are killed where a task takes too long.
- `tasks`: what they run: read messages, localize queries, build, extend and shrink maps, draw a public one.
- `entering`: contributions on their way into a map.
"""

"""The board: any scenes in every form. `split` chooses map images and queries, and makes the raw map; `study` measures a scene,
`recovery` attacks it; `rows` are the records of it.
"""

"""Maps of many images by clusters: the cut (`view_graph`), and how maps of the parts are joined (`pieces`, `joining`).

`joined_maps` runs and joins clusters of any kind; `of_positions` and `of_lines` say what is particular to theirs. `repeated`
finds pairs of images that show two things that look the same, before images are cut. `plans` says what many images take.
"""

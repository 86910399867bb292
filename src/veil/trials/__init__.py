"""Photographs that a map does not hold, localized in every form, and a map from lines, against reference poses.

`held_out` is the protocol of the demo, and `form_answers` has a photograph in each form. `tile_exits` localizes by each exit of
tiles. `line_maps` makes maps from lines, `reconstruction_run` is its record, and `position_leakage` says what they give away.
"""

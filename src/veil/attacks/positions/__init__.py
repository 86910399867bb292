"""Attacks on hidden positions: where on its line, or at which rank of the message, a keypoint lies.

`line_density`, `line_neighbors` and `neighbor_field` find positions on the `segments` of lines. `pair_network` and
`colocated_keypoints` say which features are neighbors. `order` tests the order of a message.
"""

"""Attacks on hidden positions: where on its line, or at which rank of the message, a keypoint lies."""

"""Files of faces: descriptors, pairs, the store of templates."""

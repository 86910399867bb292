"""Files of faces: descriptors, pairs, the store of templates; and messages of a third party as bytes."""

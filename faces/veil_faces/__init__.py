"""Face templates: descriptors of people, lifted to subspaces that verify without being stored raw."""

"""Attacks from the distribution of descriptors: they use a public database, the pool of decoys, or labelled descriptors.

`nearest`, `database`, `clustering` and `attributes` search a database. `modes` and `context` use a `density_network`, which
`learned_model` holds with the network of pairs. `blind_sorting` sorts decoys of whole photographs apart. Behind lines
`same_photograph` takes the place of `context`, or `whole_photograph`, a transformer over the modes of all features.
"""

"""Public codebooks: dictionaries of words, pools of decoys, compression, and how they are made.

`codebook` is the common part, `dictionary` and `decoys` the two kinds, `compression` the way into hardened space.
`sampling` and `kmeans` make words, `shards` does it on an engine. `eight_bits` stores float words, and `quantization` measures
how much detail words lose. `mirror` has descriptors and words of mirrored pictures. `neighbors` searches by faiss.
"""

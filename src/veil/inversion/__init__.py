"""Image inversion: networks that turn a server's view of an image back into its picture (docs/theory/inversion.md).

`maps`, `quality`, `weights`, `forward` and `whole` need NumPy alone: a network's input, how alike two pictures are, trained
weights, the network written out, and pictures of whole photographs. `network` needs torch, the extra `veil[inversion]`.
"""

"""Image inversion: networks that turn a server's view of an image back into its picture (docs/theory/inversion.md).

`maps`, `quality` and `weights` need NumPy alone; `network` and `inference` need torch, the extra `veil[inversion]`.
"""

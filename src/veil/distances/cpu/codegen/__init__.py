"""Writers of LLVM IR for each compiled function of backend `cpu`.

`emit` writes instructions, `shape` says which tiles. `gram`, `eliminate` and `products` are parts of functions. The functions
are in `outputs`, `panels`, `origins`, `double`, `listed`, `ranking`, `bounds`, `selection`, `rounding` and `points`.
"""

"""Writers of the LLVM IR of each compiled function of backend `cpu`."""

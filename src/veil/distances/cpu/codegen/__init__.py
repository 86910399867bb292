"""Writers of LLVM IR for each compiled function of backend `cpu`."""

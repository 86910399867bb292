"""Backend `cpu`: distances of all pairs by code generated for the processor at hand (distances.md#the-compiled-kernel)."""

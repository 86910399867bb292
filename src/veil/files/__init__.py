"""The only place that touches disk besides the command line: features, messages, codebooks, maps, the ledger."""

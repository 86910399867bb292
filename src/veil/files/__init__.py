"""Reading and writing files: photographs, features, codebooks, maps, face stores, the secret and the ledger.

Besides the command line and reports, no other part of the package touches the disk.
"""

"""Results as records: what a command of the repository printed, when, on what, and of which code.

- `record`: a record, its tables, and keys of their cells.
- `printed`: tables in what a command printed.
- `code`: digests of the code that a run loaded, which comments and formatting do not change.
- `laws`: what an epsilon of words means, beside it in tables and sentences.
- `pages`: pages that cite cells of records, and digits in them that nothing vouches for.
"""

"""Records for JSON: TypedDicts named `...Json`, each beside the code that makes it; here is what they share (`values`).

`python docs/extensions/schemas.py` writes the schemas of commands and of the service from them.
"""

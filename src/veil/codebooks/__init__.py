"""Public codebooks: dictionaries of words, pools of decoys, compression, and how they are made."""

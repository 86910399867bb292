"""Records of maps and of what was given to them.

- `records`: maps, their names, and the messages in them. `policy`: what a map accepts. `answerable`: which queries it answers.
- `contributions`: messages that were given. `suspects`: those that an administrator should look at. `receipts` of deletions.
- `earth`: where on Earth a map is, and its poses there.
"""

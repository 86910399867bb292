"""Pairs of images that are matched: their choice, their matching, and the store of their matches.

A map is made from matches of pairs, and all pairs of many images are too many. The files, in the order of the work:

- `images`: an image as a server holds it, and facts of its descriptors that are known without reading them.
- `candidates`: pairs that might show one place: of a list or a sequence, by retrieval, by matches of others.
- `tracks`: pairs whose images see the same points.
- `choice`: the one decision which pairs are matched, for maps of points and of lines, and for images that are added (by a
  map's index).
- `matching`: the loop that matches what is chosen.
- `blocks`: pairs that are matched together, in this process or on an engine.
- `store`: matches kept on disk, and lists of pairs.

The room is on the server's side: it takes forms and public descriptors, and reads no raw features.
"""

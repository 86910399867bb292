"""Places on the server side: maps, and the poses of queries in them, from forms and public features alone.

`pairs` chooses which images are matched, matches them and keeps the matches; `maps` builds maps of points and of lines;
`poses` localizes a query in a map and judges the answer. Nothing here imports raw features, extraction or mechanisms.
"""

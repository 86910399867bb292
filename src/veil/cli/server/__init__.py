"""Commands of the server: match, map, index, localize."""

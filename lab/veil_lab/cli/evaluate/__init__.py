"""Commands of `veil evaluate`: one for each public protocol."""

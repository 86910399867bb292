"""`veil evaluate`: a command for each public protocol."""

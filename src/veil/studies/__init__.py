"""Studies: one public protocol a file, in groups by what they measure."""

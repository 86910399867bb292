"""Tables and figures of studies."""

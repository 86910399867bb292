"""Features -> forms; the raw side."""

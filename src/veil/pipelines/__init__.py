"""The work that Python users and the command line share: paths and features in, records out; no parsing and no printing."""

"""Commands of the device: extract, privatize, budget, gravity."""

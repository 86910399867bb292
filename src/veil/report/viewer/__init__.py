"""The viewer: one HTML file in which a map is seen as the device, the server or an attack has it."""

"""The viewer: one HTML file in which a map is seen as the device, the server or an attack has it.

`content` is a view, `page` makes the file of it, with arrays by `packing` and facts by `records`.
"""

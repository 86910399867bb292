"""Maps of many images by clusters: the cut (`view_graph`), and how maps of the parts are joined (`pieces`, `joining`)."""

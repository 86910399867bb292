"""Studies: public protocols of evaluation, in groups by what they measure; `board` joins them on any scenes."""

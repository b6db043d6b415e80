"""Codecs: the codes of one frame in, its samples out, streaming, with a history a slot."""

"""Kyutai's Mimi in torch, streaming: codes of one frame -> 1,920 samples, and samples -> codes, with a state a slot."""

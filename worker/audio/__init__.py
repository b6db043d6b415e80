"""From the model's frames to what a session asked for: trim, gain, resample, encode; and the times on both sides."""

"""What ``antiphon check`` looks at: one finding a line, each with what to do about it."""

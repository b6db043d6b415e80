"""The wire contract, v1: subjects, headers, messages and their codecs, all as pure functions and plain values."""

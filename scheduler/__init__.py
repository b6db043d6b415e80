"""The time room: which sessions step now. Knows neither torch nor NATS."""

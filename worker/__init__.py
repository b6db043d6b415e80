"""The transport room: NATS subjects in, audio frames out."""

"""The model room: slots in, frames out. Knows torch; knows neither asyncio nor NATS."""

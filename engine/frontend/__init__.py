"""The text front end: deltas of English in, spoken words and breaks as tokens out. Knows neither torch nor asyncio."""

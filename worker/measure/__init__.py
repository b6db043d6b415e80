"""The measuring machinery of ``antiphon bench``: stopwatches, an ideal player, and the machine's own faults beside ours."""

"""The machinery of ``antiphon bench``: load, an ideal player, percentiles, and the machine's faults beside ours."""

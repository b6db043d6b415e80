"""The curves of ``tests/bench/step.py`` as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Curves = Mapping[str, Mapping[int, float]]


def plot(by_rows: Curves, by_length: Curves, path: Path) -> None:
    """Milliseconds a frame, against rows and against the steps that sessions have gone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    for name, line in by_rows.items():
        left.plot(list(line), list(line.values()), marker="o", label=name)
    left.axhline(80.0, color="grey", linestyle=":", label="the beat")
    left.set(xlabel="rows", ylabel="ms a frame", xscale="log", yscale="log", title="One step, by rows")
    left.legend(fontsize=8)
    for name, line in by_length.items():
        right.plot(list(line), list(line.values()), marker=".", label=name)
    right.set(xlabel="steps gone", ylabel="ms a frame", title="One step, by the length of its sessions", ylim=(0, None))
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)

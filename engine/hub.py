"""A model by name: a folder, or ``hf://owner/name[@revision]`` on the Hugging Face hub.

The hub's client writes each file under a name of its own and renames it when it is whole, under a lock: a download that
is killed leaves nothing that looks like a file, and workers on one host share one cache.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.errors import CheckpointError
from engine.fields import Fields, read_json

HUB = "hf://"
NAMES = ("moshi_name", "mimi_name", "tokenizer_name", "mimi_config_name")
"""Fields of config.json that name the files of a model."""


def model_folder(place: str) -> Path:
    """A local folder with all files of the model. Blocks for as long as a download takes.

    Raises CheckpointError, which names the files that are wanted and not here, or says what is wrong with the place.
    """
    if not place.startswith(HUB):
        folder = Path(place)
        if not folder.is_dir():
            raise CheckpointError(place, "is not a folder")
        return folder
    name, _, revision = place.removeprefix(HUB).partition("@")
    if name.count("/") != 1:
        raise CheckpointError(place, f"is not of the form {HUB}owner/name[@revision]")

    from huggingface_hub import hf_hub_download

    def fetch(file: str) -> Path:
        return Path(hf_hub_download(name, file, revision=revision or None))

    return fetch_all(place, fetch)


def fetch_all(place: str, fetch: Callable[[str], Path]) -> Path:
    """The folder that config.json and all files that it names are in once ``fetch`` has brought them."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted, missing, reason = ["config.json"], [], ""
    folder = Path()
    for file in wanted:
        try:
            path = fetch(file)
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            missing.append(file)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if file == "config.json":
            folder = path.parent
            wanted += named_files(path)
    if missing:
        raise CheckpointError(place, f"cannot be fetched, wanted: {', '.join(missing)} ({reason})")
    return folder


def named_files(path: Path) -> list[str]:
    """Files that a config.json names. Raises CheckpointError."""
    raw = Fields(path, read_json(path))
    return [raw.file(field) for field in NAMES if raw.given(field)]

"""The voices of a model: a folder, or a repository on the Hugging Face hub, of files named ``<name><suffix>``.

A model that hears voices takes tensors (``speaker_wavs`` [1, width, positions], moshi ``TTSModel.get_voice_path``); one
that goes on from audio takes codes, or recordings that Mimi makes codes of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.contract import SlotOptions
from engine.errors import CheckpointError, EngineError, UnusableVoice, VoiceNotFound, VoiceOutOfReach
from engine.hub import HUB
from engine.tensors import TensorFile

log = logging.getLogger(__name__)

TENSOR = ".safetensors"
RECORDINGS = (".wav", ".flac", ".mp3", ".ogg")
MOST_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class VoicedOptions(SlotOptions):
    """Options of a slot whose model has voices."""

    voices: tuple[str, ...] = ()
    """Who speaks, in the order of the speakers' turns; empty: the model's first voice."""
    cfg: float | None = None
    """Strength of the guidance; None: the model's own."""


@dataclass(frozen=True, slots=True)
class VoiceLibrary:
    """Voices by name. A name is looked up here and never made part of a path."""

    files: dict[str, Path | HubFile] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files)

    def find(self, name: str) -> Path:
        """A local file, fetched if need be.

        Raises:
            VoiceNotFound: there is no such voice.
            VoiceOutOfReach: it cannot be fetched.
        """
        if name not in self.files:
            raise VoiceNotFound(name, self.names)
        place = self.files[name]
        return place if isinstance(place, Path) else place.fetch(name)


@dataclass(frozen=True, slots=True)
class HubFile:
    repo: str
    path: str
    revision: str | None

    def fetch(self, name: str) -> Path:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            return Path(hf_hub_download(self.repo, self.path, revision=self.revision))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise VoiceOutOfReach(name, f"{HUB}{self.repo}/{self.path} cannot be fetched ({error})") from error


def open_library(place: Path | str, config: ModelConfig) -> VoiceLibrary:
    """The voices for this model in a folder, or in ``hf://owner/name[@revision][/folder]``.

    Raises CheckpointError if the folder or the repository cannot be listed.
    """
    if isinstance(place, str) and place.startswith(HUB):
        return _hub_library(place, config)
    folder = Path(place)
    if not folder.is_dir():
        raise CheckpointError(str(folder), "is not a folder of voices")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = ((path, voice_name(path.relative_to(folder).as_posix(), config)) for path in paths)
    return VoiceLibrary({name: path for path, name in names if name})


def _hub_library(place: str, config: ModelConfig) -> VoiceLibrary:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    owner, _, rest = place.removeprefix(HUB).partition("/")
    base, _, folder = rest.partition("/")
    base, _, revision = base.partition("@")
    repo, prefix = f"{owner}/{base}", f"{folder}/" if folder else ""
    try:
        listed = HfApi().list_repo_files(repo, revision=revision or None)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        return _library_at_hand(place, repo, revision or None, prefix, config, error)
    files: dict[str, Path | HubFile] = {}
    for path in sorted(listed):
        name = voice_name(path.removeprefix(prefix), config) if path.startswith(prefix) else None
        if name:
            files[name] = HubFile(repo, path, revision or None)
    return VoiceLibrary(files)


def _library_at_hand(
    place: str, repo: str, revision: str | None, prefix: str, config: ModelConfig, reason: Exception
) -> VoiceLibrary:
    """Voices of a repository that were fetched before: the hub cannot be asked which others there are."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repo, revision=revision, local_files_only=True)) / prefix
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        folder = None
    library = open_library(folder, config) if folder is not None and folder.is_dir() else VoiceLibrary()
    if not library.names:
        raise CheckpointError(place, f"cannot be listed ({reason}); name a folder of voices instead") from reason
    log.warning("%s cannot be listed; the %d voices of it that are here are offered", place, len(library.names))
    return library


def voice_name(path: str, config: ModelConfig) -> str | None:
    """Name of the voice in a file, or None if the file is not a voice for this model."""
    if config.hears_voices:
        suffix = config.voice_signature + TENSOR
        return path.removesuffix(suffix) if path.endswith(suffix) and path != suffix else None
    if config.takes_prefixes:
        ends = (TENSOR, *RECORDINGS)
        return next((path.removesuffix(end) for end in ends if path.endswith(end) and path != end), None)
    return None


def read_voice(path: Path, name: str) -> Tensor:
    """What a model hears: float32 [positions, width].

    Raises UnusableVoice if the file is no voice.
    """
    try:
        tensor = TensorFile.read(path).left.get("speaker_wavs")
    except EngineError as error:
        raise UnusableVoice(name, str(error)) from error
    if tensor is None:
        raise UnusableVoice(name, "has no tensor 'speaker_wavs'")
    if tensor.dim() != 3 or tensor.shape[0] != 1 or not 1 <= tensor.shape[2] <= MOST_POSITIONS:
        raise UnusableVoice(name, f"'speaker_wavs' is {list(tensor.shape)}, expected [1, width, positions]")
    if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
        raise UnusableVoice(name, "'speaker_wavs' is not finite floats")
    return tensor[0].T.float()


def read_prefix(path: Path, name: str, config: ModelConfig, encode: Callable[[Path], Tensor] | None) -> Tensor:
    """What a model goes on from: int64 [frames, 1 + codebooks], text token -1 first (moshi ``TTSModel.get_prefix``).

    A safetensors file holds ``codes`` [codebooks, frames]; encode makes the same of a recording.

    Raises UnusableVoice if the file is no voice.
    """
    if path.suffix == TENSOR:
        try:
            codes = TensorFile.read(path).left.get("codes")
        except EngineError as error:
            raise UnusableVoice(name, str(error)) from error
    else:
        codes = encode(path) if encode is not None else None
    if codes is None:
        raise UnusableVoice(name, "is neither codes nor a recording that this model can encode")
    if codes.dim() != 2 or codes.shape[0] < config.generated or codes.is_floating_point():
        raise UnusableVoice(name, f"codes are {list(codes.shape)}, expected [{config.codebooks}, frames]")
    codes = codes[: config.codebooks].long()
    if codes.shape[1] < 1 or int(codes.min()) < 0 or int(codes.max()) >= config.card:
        raise UnusableVoice(name, "codes are empty or out of range")
    rows = torch.full((codes.shape[1], 1 + config.codebooks), -1)
    rows[:, 1 : 1 + len(codes)] = codes.T
    return rows

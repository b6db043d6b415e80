"""What an accepted open is fitted out with: the engine's options, its audio's chain and way out, its ``ready``."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, get_args

from engine.contract import ModelInfo, SlotOptions
from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding as AudioEncoding
from worker.bus import Bus
from worker.egress import Egress
from worker.narration import Opening
from worker.plumbing import Plumbing
from worker.porter import Porter
from worker.relocation import Arrival
from worker.sections import Settings
from worker.session import LiveSession
from worker.telemetry import Telemetry
from worker.wire import events, subjects
from worker.wire.offer import Offer
from worker.wire.requests import Open


@dataclasses.dataclass(frozen=True, slots=True)
class Outfitter:
    """One a worker."""

    bus: Bus
    settings: Settings
    model: ModelInfo
    telemetry: Telemetry
    offer: Offer
    opening: Callable[[Open], Opening]
    version: str
    plumbing: Plumbing
    porter: Porter

    def options(self, settled: Open) -> SlotOptions:
        """``voices`` and ``cfg`` are fields of models with voices alone."""
        known = {field.name for field in dataclasses.fields(self.model.defaults)}
        names = known & {"seed", "temperature", "top_k", "cfg", "padding_bonus", "max_padding"}
        chosen = {name: value for name in names if (value := getattr(settled, name)) is not None}
        if "voices" in known:
            chosen["voices"] = settled.voices
        return dataclasses.replace(self.model.defaults, recorded=settled.resume, **chosen)

    def make(self, session_id: str, arrival: Arrival, pts: int = 0, opened_at: float | None = None) -> LiveSession:
        """``pts``: of the first sample, in a session that goes on here. ``opened_at``: if it had to wait since. Raises
        WireError."""
        settled = arrival.settled
        opening = self.opening(settled)  # before anything is begun that would have to be ended
        audio = settled.format.encoding
        assert audio in get_args(AudioEncoding)
        chain = OutputChain(
            audio,  # type: ignore[arg-type]  # checked against the offer and above
            settled.format.sample_rate,
            model_rate=self.model.sample_rate,
            gain_db=settled.gain_db,
            trim_silence=settled.trim_silence,
            stream=zlib.crc32(session_id.encode()),
            pts=pts,
        )
        out = subjects.out_subject(arrival.tenant, session_id) if settled.fanout else None
        egress = Egress(self.bus, arrival.message.reply, arrival.content, chain, audio, out=out)
        attributes: dict[str, float | str] = {
            "voice": ",".join(settled.voices),
            "encoding": audio,
            "sample_rate": settled.format.sample_rate,
            "pace": settled.pace,
        }
        span = self.telemetry.session_opened(
            arrival.message.headers, session=session_id, tenant=arrival.tenant, attributes=attributes
        )
        options = self.options(settled)
        plumbing = dataclasses.replace(self.plumbing, take_text=self.porter.inlet(arrival.tenant))
        return LiveSession(session_id, settled, options, opening, egress, span, plumbing, opened_at)

    def ready(self, session: LiveSession, tenant: str, **resumed: Any) -> events.Ready:
        return events.Ready.answering(
            session.settled,
            session=session.id,
            input=subjects.input_subject(tenant, self.settings.worker.id, session.id),
            worker=self.settings.worker.id,
            model=self.model.name,
            engine=self.version,
            frame_ms=self.model.frame_ms,
            limits=self.offer.limits,
            header=session.egress.header_bytes,
            **resumed,
        )

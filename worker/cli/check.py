"""``antiphon check``: look at everything that serving needs, and say what to do about what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from pydantic import Field
from pydantic_settings import CliToggleFlag, SettingsConfigDict

from worker.checkup import bus, device, machine, model
from worker.checkup.finding import Finding, Probe, State
from worker.cli.command import Command

PROBES: tuple[Probe, ...] = (*machine.PROBES, *model.PROBES, *device.PROBES, *bus.PROBES)
MARKS = {State.WORKS: "ok", State.NOTE: "--", State.FAILS: "!!", State.SKIPPED: ".."}
STYLES = {State.WORKS: "green", State.NOTE: "yellow", State.FAILS: "bold red", State.SKIPPED: "dim"}
NAME_WIDTH = max(len(name) for name in (*(probe.name for probe in PROBES), "jetstream", "speech"))


class Check(Command):
    """Look at what works on this machine. Each line ends with what was seen; what is missing has its remedy below it.

    Nothing is downloaded but a model of the hub that is not here yet. Exit code 0: everything that serve needs works.
    """

    model_config = SettingsConfigDict(cli_shortcuts={"model.device": "device"})

    as_json: CliToggleFlag[bool] = Field(default=False, alias="json", description="print the findings as JSON")

    async def cli_cmd(self) -> int:
        # Before torch is imported: its workers must not spin on cores that the processes here share.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        found: list[Finding] = []
        for probe in PROBES:
            fresh = await probe.findings(self)
            found += fresh
            if not self.as_json:
                show(fresh)
        if self.as_json:
            print(json.dumps({"ok": serves(found), "findings": [finding.as_dict() for finding in found]}, indent=1))
        else:
            print("everything that serve needs works" if serves(found) else "serve would not work here: see !! above")
        return 0 if serves(found) else 1


def serves(found: Sequence[Finding]) -> bool:
    return all(finding.state is not State.FAILS for finding in found)


def show(found: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for finding in found:
        line = Text(f"{MARKS[finding.state]}  ", style=STYLES[finding.state])
        line.append(f"{finding.name:<{NAME_WIDTH}}  {finding.said}", style="default not bold not dim")
        console.print(line)
        if finding.remedy:
            console.print(Text(f"{'':{NAME_WIDTH + 6}}-> {finding.remedy}"))

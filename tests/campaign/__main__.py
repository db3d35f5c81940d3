"""`python -m tests.campaign crash --store sqlite|postgres --kills N --seed S`, `... soak --minutes N --agents N`.

Both print a table at the end and exit with 1 if anything is not as it should be; `--json FILE` has it all, `--docs`
puts the table into docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
from bench.rig.machine import this_machine

from . import crash, soak
from .page import publish


def main() -> int:
    # What a killed connection leaves in a client's loop is nothing to read about here.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    campaigns = parser.add_subparsers(dest="campaign", required=True)
    soaking = campaigns.add_parser("soak", help="a crowd at work, a Chromium killed every minute: what grows?")
    soaking.add_argument("--minutes", type=float, default=60)
    soaking.add_argument("--agents", type=int, default=100)
    soaking.add_argument("--think-s", type=float, default=8.0, help="how long an agent thinks between two things")
    crashing = campaigns.add_parser("crash", help="a crowd at work, everything killed under it: what is lost?")
    crashing.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    crashing.add_argument("--kills", type=int, default=100, help="of each thing that can be killed")
    crashing.add_argument("--agents", type=int, default=16)
    crashing.add_argument("--think-s", type=float, default=0.3, help="how long an agent thinks between two things")
    for campaign in (soaking, crashing):
        campaign.add_argument("--seed", type=int, default=1)
        campaign.add_argument("--place", type=Path, help="where state and logs stay; else they are removed")
        campaign.add_argument("--json", type=Path, metavar="FILE", help="also write what came of it there")
        campaign.add_argument("--docs", action="store_true", help="also write the table into docs/campaigns.md")
    chosen = parser.parse_args()
    # Told to stop, it still ends every process that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="tabherd-campaign-") as temporary:
        shared = {name: getattr(chosen, name) for name in ("agents", "think_s", "seed")}
        shared |= {"place": chosen.place or Path(temporary), "tell": _tell}
        report: soak.Report | crash.Report
        if chosen.campaign == "soak":
            report = soak.run(minutes=chosen.minutes, **shared)
            said = soak.markdown(report)
        else:
            report = crash.run(store=chosen.store, kills=chosen.kills, **shared)
            said = crash.table(report)
    if chosen.json is not None:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print(said)
    if chosen.docs:
        if chosen.campaign == "soak":
            command = f"soak --minutes {chosen.minutes:g} --agents {chosen.agents} --think-s {chosen.think_s:g}"
            publish("soak", f"python -m tests.campaign {command} --seed {chosen.seed}", said, machine)
        else:
            assert isinstance(report, crash.Report)
            publish(f"crash {chosen.store}", report.replay, said, machine)
    return 0 if report.is_good else 1


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

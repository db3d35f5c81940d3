"""The run of all benchmarks: what it does when one of them fails."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from bench import Figure, __main__


def test_one_that_fails_does_not_keep_the_others_from_being_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, *, is_quick: bool) -> dict[str, Figure]:
        if name == "http":
            raise RuntimeError("its server did not start")
        return {"a_figure": Figure(ours=1.0, unit="ms")}

    kept = tmp_path / "figures.json"
    monkeypatch.setattr(__main__, "_run", run)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "argv", ["bench", "http", "store", "--json", str(kept)])
    assert __main__.main() == 1
    assert list(json.loads(kept.read_text())) == ["store"]
    said = capsys.readouterr().out
    assert "its server did not start" in said
    assert "Failed: http" in said

"""Finding a browser, on machines made of a few files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tabherd.browsers.find import Machine, Ran, find_browser, run_command
from tabherd.errors import NoBrowser

ELF = b"\x7fELF\x02\x01"


class Computer:
    """A machine under a temporary directory, with /usr/bin on its PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"PATH": f"{root}/usr/bin:{root}/snap/bin", "HOME": f"{root}/home/ada"}
        # Programs that cannot run here.
        self.broken: set[str] = set()

    def put(self, path: str, content: bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755)
        return place

    def machine(self) -> Machine:
        return Machine(environ=self.environ, root=self.root, run=self._run)

    def _run(self, argv: Sequence[str]) -> Ran:
        assert argv[1:] == ("--version",)
        if argv[0] in self.broken:
            return Ran(127, "error while loading shared libraries: libnss3.so")
        return Ran(0, "a warning\nChromium 156.0.1.2 ")


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def test_debians_scripts_are_resolved_to_the_binaries_they_start(computer: Computer) -> None:
    for name in ("chromium", "chromium-headless-shell"):
        computer.put(f"usr/bin/{name}", b"#!/bin/sh\n/usr/lib/chromium/x\n")
    shell = computer.put("usr/lib/chromium/chromium-headless-shell", ELF)
    full = computer.put("usr/lib/chromium/chromium", ELF)
    found = find_browser(machine=computer.machine())
    assert (found.path, found.kind, found.version) == (shell, "headless-shell", "Chromium 156.0.1.2")
    assert find_browser("chromium", machine=computer.machine()).path == full


def test_a_headed_pool_gets_no_headless_build(computer: Computer) -> None:
    computer.put("usr/lib/chromium/chromium-headless-shell", ELF)
    full = computer.put("usr/lib/chromium/chromium", ELF)
    assert find_browser(headless=False, machine=computer.machine()).path == full


def test_googles_script_is_resolved_to_the_binary_beside_it(computer: Computer) -> None:
    wrapper = computer.put("opt/google/chrome/google-chrome", b"#!/bin/bash\nexec -a x chrome\n")
    chrome = computer.put("opt/google/chrome/chrome", ELF)
    (computer.root / "usr/bin").mkdir(parents=True)
    (computer.root / "usr/bin/google-chrome").symlink_to(wrapper)
    found = find_browser(machine=computer.machine())
    assert (found.path, found.kind) == (chrome, "chrome")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("usr/bin/chromium", "chromium"),
        ("usr/lib64/chromium-browser/chromium-browser", "chromium"),
        ("home/ada/.cache/ms-playwright/chromium_headless_shell-1/chrome-linux/headless_shell", "headless-shell"),
        ("home/ada/.cache/ms-playwright/chromium-1/chrome-linux/chrome", "chrome"),
        ("home/ada/.cache/puppeteer/chrome/linux-1/chrome-linux64/chrome", "chrome"),
    ],
)
def test_the_usual_places_are_looked_at(computer: Computer, path: str, kind: str) -> None:
    binary = computer.put(path, ELF)
    found = find_browser(machine=computer.machine())
    assert (found.path, found.kind) == (binary, kind)


@pytest.mark.parametrize(
    ("path", "content"), [("snap/bin/chromium", ELF), ("usr/bin/chromium-browser", b"#!/bin/sh\nexec /snap/bin/x\n")]
)
def test_a_snap_is_passed_over_with_the_reason(computer: Computer, path: str, content: bytes) -> None:
    computer.put(path, content)
    with pytest.raises(NoBrowser, match="snap, which cannot use tabherd's profile directories"):
        find_browser(machine=computer.machine())


def test_a_script_without_its_binary_is_passed_over_with_the_reason(computer: Computer) -> None:
    computer.put("usr/bin/chromium", b"#!/bin/sh\n")
    with pytest.raises(NoBrowser, match="is a script, and the binary it starts was not found"):
        find_browser(machine=computer.machine())


def test_a_binary_that_does_not_run_is_passed_over_for_one_that_does(computer: Computer) -> None:
    computer.broken.add(str(computer.put("usr/lib/chromium/chromium-headless-shell", ELF)))
    full = computer.put("usr/lib/chromium/chromium", ELF)
    assert find_browser(machine=computer.machine()).path == full
    with pytest.raises(NoBrowser, match=r"libnss3\.so"):
        find_browser("headless-shell", machine=computer.machine())


def test_the_environment_names_the_browser_for_auto_only(computer: Computer) -> None:
    named = computer.put("home/ada/my/chrome", ELF)
    shell = computer.put("usr/lib/chromium/chromium-headless-shell", ELF)
    computer.environ["TABHERD_BROWSER"] = str(named)
    assert find_browser(machine=computer.machine()).path == named
    assert find_browser("headless-shell", machine=computer.machine()).path == shell


def test_a_named_path_is_used_and_its_kind_follows_from_its_name(computer: Computer) -> None:
    named = computer.put("somewhere/chrome-headless-shell", ELF)
    assert find_browser(str(named), machine=computer.machine()).kind == "headless-shell"


@pytest.mark.parametrize("wanted", ["/no/such/browser", "firefox"])
def test_a_named_path_that_is_none_is_refused_by_name(computer: Computer, wanted: str) -> None:
    with pytest.raises(NoBrowser, match=f"no browser at {wanted}"):
        find_browser(wanted, machine=computer.machine())


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y chromium-headless-shell"),
        ("dnf", "sudo dnf install"),
        ("pacman", "sudo pacman -S"),
        ("apk", "sudo apk add chromium"),
        ("brew", "brew install --cask chromium"),
    ],
)
def test_without_a_browser_the_error_says_exactly_what_to_run(computer: Computer, tool: str, command: str) -> None:
    computer.put(f"usr/bin/{tool}", ELF)
    with pytest.raises(NoBrowser, match="No Chromium or Chrome was found") as caught:
        find_browser(machine=computer.machine())
    assert command in caught.value.action
    assert "TABHERD_BROWSER" in caught.value.action


def test_on_an_unknown_system_the_error_still_says_what_to_do(computer: Computer) -> None:
    with pytest.raises(NoBrowser) as caught:
        find_browser(machine=computer.machine())
    assert caught.value.action.startswith("Install Chromium or Google Chrome")


def test_the_browser_of_this_machine_is_found_as_a_program_with_a_version() -> None:
    found = find_browser()
    assert found.path.read_bytes()[:4] == b"\x7fELF"
    assert any(character.isdigit() for character in found.version)


def test_a_command_that_cannot_run_has_a_status_and_a_reason() -> None:
    assert run_command(("/no/such/command",)).status == 127
    assert "timed out" in run_command(("/bin/sleep", "1000"), limit_s=0.05).output
    assert run_command(("/bin/sh", "-c", "echo out; echo err >&2; exit 3")) == Ran(3, "out\nerr")

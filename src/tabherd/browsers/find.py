"""Finds a browser on this machine: the real binary, its kind and version.

Only a program that the kernel executes directly counts. Distributions put shell scripts on PATH which start the
browser as a child: their pid is a shell's, and killing it orphans the browser. Such a script is resolved to the binary
it stands for; a snap, which cannot be, is passed over with a reason.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from ..errors import NoBrowser

Kind: TypeAlias = Literal["headless-shell", "chromium", "chrome"]

# Command names of each kind, as distributions, Google, Playwright and Puppeteer spell them.
NAMES: Final[Mapping[Kind, tuple[str, ...]]] = {
    "headless-shell": ("chromium-headless-shell", "chrome-headless-shell", "headless_shell"),
    "chromium": ("chromium", "chromium-browser", "Chromium"),
    "chrome": ("google-chrome-stable", "google-chrome", "chrome", "Google Chrome"),
}
# Where packages keep the real binaries.
LIBRARY_DIRS: Final = (
    "usr/lib/chromium",
    "usr/lib64/chromium-browser",
    "usr/lib/chromium-browser",
    "opt/google/chrome",
    "Applications/Chromium.app/Contents/MacOS",
    "Applications/Google Chrome.app/Contents/MacOS",
)
# Under the home directory: what Playwright and Puppeteer have downloaded.
CACHE_PATTERNS: Final = (
    ".cache/ms-playwright/*/*/*",
    ".cache/puppeteer/*/*/*/*",
    "Library/Caches/ms-playwright/*/*/*",
)
# First bytes of programs: ELF, and Mach-O in its three spellings.
PROGRAM_MAGIC: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xcf")
VERSION_LIMIT_S: Final = 15


class FoundBrowser(msgspec.Struct, frozen=True):
    """A browser that can be launched."""

    path: Path
    kind: Kind
    # As the binary prints it.
    version: str


class Ran(msgspec.Struct, frozen=True):
    """What came of a command."""

    status: int
    output: str


# Runs a command to its end.
Run: TypeAlias = Callable[[Sequence[str]], Ran]


def run_command(argv: Sequence[str], limit_s: float = VERSION_LIMIT_S) -> Ran:
    """Run a command to its end; one that cannot be run, or takes too long, has status 127 and says why."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(127, str(error))
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace").strip())


class Machine(msgspec.Struct, frozen=True):
    """Where to look and how to ask; tests bring their own."""

    environ: Mapping[str, str] = os.environ
    root: Path = Path("/")
    run: Run = run_command

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME", "/nonexistent"))


def find_browser(wanted: str = "auto", headless: bool = True, machine: Machine | None = None) -> FoundBrowser:
    """The browser to launch, or `NoBrowser` with the command that installs one.

    `wanted` is a kind, the path of a binary, or auto: what TABHERD_BROWSER names, else the lightest build that can
    do the job.
    """
    machine = machine or Machine()
    if wanted == "auto":
        wanted = machine.environ.get("TABHERD_BROWSER") or "auto"
    if wanted not in ("auto", *NAMES):
        return _named(Path(wanted).expanduser(), machine)
    passed_over: list[str] = []
    for kind in _kinds(wanted, headless):
        for candidate in _candidates(kind, machine):
            found = _look_at(candidate, kind, machine)
            if isinstance(found, FoundBrowser):
                return found
            passed_over.append(found)
    what = "No Chromium or Chrome was found" if wanted == "auto" else f"No {wanted} was found"
    why = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise NoBrowser(f"{what} on this machine{why}.", action=install_hint(machine), retryable=False)


def install_hint(machine: Machine) -> str:
    """What a person has to run to get a browser, on this machine."""
    alternative = "or set TABHERD_BROWSER to the path of a Chrome or Chromium binary."
    for tool, command in INSTALL_COMMANDS.items():
        if which(tool, machine) is not None:
            return f"Run: {command}; {alternative}"
    return f"Install Chromium or Google Chrome, {alternative}"


# By the tool that must exist for it, in the order they are looked for.
INSTALL_COMMANDS: Final[Mapping[str, str]] = {
    "apt-get": "sudo apt-get update && sudo apt-get install -y chromium-headless-shell",
    "dnf": "sudo dnf install -y chromium-headless",
    "pacman": "sudo pacman -S --noconfirm chromium",
    "apk": "sudo apk add chromium",
    "brew": "brew install --cask chromium",
}


def which(name: str, machine: Machine) -> Path | None:
    """The first executable of that name on PATH."""
    for folder in machine.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(folder) / name
        # Not Path.is_file, which raises where a directory on PATH may not be read.
        if folder and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _kinds(wanted: str, headless: bool) -> tuple[Kind, ...]:
    match wanted:
        case "headless-shell" | "chromium" | "chrome":
            return (wanted,)
        case _ if headless:
            return ("headless-shell", "chromium", "chrome")
        case _:
            # The headless build has no window to show.
            return ("chromium", "chrome")


def _candidates(kind: Kind, machine: Machine) -> Iterator[Path]:
    for name in NAMES[kind]:
        if (on_path := which(name, machine)) is not None:
            yield on_path
    for folder in LIBRARY_DIRS:
        for name in NAMES[kind]:
            if (candidate := machine.root / folder / name).is_file():
                yield candidate
    for pattern in CACHE_PATTERNS:
        # The newest download last in name order is tried first.
        for candidate in sorted(machine.home.glob(pattern), reverse=True):
            if candidate.name in NAMES[kind] and candidate.is_file():
                yield candidate


def _look_at(candidate: Path, kind: Kind, machine: Machine) -> FoundBrowser | str:
    """The browser behind that path, or why it is none."""
    program = _program_behind(candidate, kind, machine)
    if isinstance(program, str):
        return program
    ran = machine.run((str(program), "--version"))
    if ran.status != 0:
        return f"{program} does not run: {ran.output.splitlines()[-1] if ran.output else f'status {ran.status}'}"
    return FoundBrowser(path=program, kind=kind, version=ran.output.splitlines()[-1].strip() if ran.output else "")


def _program_behind(candidate: Path, kind: Kind, machine: Machine) -> Path | str:
    real = candidate.resolve()
    if "snap" in candidate.parts or real.name == "snap":
        return f"{candidate} is a snap, which cannot use tabherd's profile directories"
    if _is_program(real):
        return real
    if b"snap" in _head(real, 4096):
        return f"{candidate} starts a snap, which cannot use tabherd's profile directories"
    # A wrapper script: the binary lies beside it (Google), or in the package's library directory (Debian, Fedora).
    folders = (real.parent, *(machine.root / folder for folder in LIBRARY_DIRS))
    for folder in folders:
        for name in NAMES[kind]:
            if _is_program(folder / name):
                return (folder / name).resolve()
    return f"{candidate} is a script, and the binary it starts was not found"


def _named(path: Path, machine: Machine) -> FoundBrowser:
    if not path.is_file():
        raise NoBrowser(
            f"There is no browser at {path}.",
            action="Correct TABHERD_BROWSER or the pool's 'browser' setting: a path, or one of auto, "
            f"{', '.join(NAMES)}.",
            retryable=False,
        )
    name = path.resolve().name
    kind: Kind = next((kind for kind, names in NAMES.items() if name in names or path.name in names), "chrome")
    found = _look_at(path, kind, machine)
    if isinstance(found, str):
        raise NoBrowser(f"The browser that was named cannot be used: {found}.", retryable=False)
    return found


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK) and _head(path, 4).startswith(PROGRAM_MAGIC)


def _head(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as start:
            return start.read(size)
    except (FileNotFoundError, PermissionError):
        # What cannot be read is no program to us; the caller names the path in its reason.
        return b""

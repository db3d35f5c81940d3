"""Installing a browser, with a command runner that only writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tabherd.browsers.find import Ran
from tabherd.browsers.install import install_browser
from tabherd.errors import NoBrowser

from .test_find import ELF, Computer


class Recorder:
    """Runs nothing; commands that contain one of `failing` fail, installing puts the binary where Debian does."""

    def __init__(self, computer: Computer, failing: tuple[str, ...] = ()) -> None:
        self._computer = computer
        self._failing = failing
        self.commands: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Ran:
        command = " ".join(argv)
        self.commands.append(command)
        if any(word in command.split() for word in self._failing):
            return Ran(100, "E: Unable to locate package")
        if "install" in argv:
            self._computer.put(f"usr/lib/chromium/{argv[-1]}", ELF)
        return Ran(0, "")


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    made = Computer(tmp_path)
    made.put("usr/bin/apt-get", ELF)
    return made


def test_root_installs_the_light_build_and_every_command_is_said(computer: Computer) -> None:
    run, said = Recorder(computer), list[str]()
    found = install_browser(computer.machine(), run, said.append, is_root=True)
    assert found.kind == "headless-shell"
    apt = "env DEBIAN_FRONTEND=noninteractive apt-get -q"
    assert run.commands == [f"{apt} update", f"{apt} install -y --no-install-recommends chromium-headless-shell"]
    assert said == [f"$ {command}" for command in run.commands]


def test_where_the_light_build_is_not_packaged_the_full_one_is_installed(computer: Computer) -> None:
    run = Recorder(computer, failing=("chromium-headless-shell",))
    assert install_browser(computer.machine(), run, lambda _: None, is_root=True).kind == "chromium"


def test_a_user_with_passwordless_sudo_installs_through_it(computer: Computer) -> None:
    computer.put("usr/bin/sudo", ELF)
    run = Recorder(computer)
    install_browser(computer.machine(), run, lambda _: None, is_root=False)
    assert run.commands[0] == "sudo -n true"
    assert all(command.startswith("sudo -n ") for command in run.commands)


@pytest.mark.parametrize("has_sudo", [True, False])
def test_a_user_who_may_not_install_is_told_what_to_run(computer: Computer, has_sudo: bool) -> None:
    if has_sudo:
        computer.put("usr/bin/sudo", ELF)
    run = Recorder(computer, failing=("true",))
    with pytest.raises(NoBrowser, match="needs root") as caught:
        install_browser(computer.machine(), run, lambda _: None, is_root=False)
    assert "sudo apt-get install -y chromium-headless-shell" in caught.value.action
    assert not any("install" in command for command in run.commands)


def test_another_package_manager_is_named_and_not_run(tmp_path: Path) -> None:
    computer = Computer(tmp_path)
    computer.put("usr/bin/dnf", ELF)
    run = Recorder(computer)
    with pytest.raises(NoBrowser) as caught:
        install_browser(computer.machine(), run, lambda _: None, is_root=True)
    assert "sudo dnf install" in caught.value.action
    assert run.commands == []


def test_a_failing_package_manager_is_quoted(computer: Computer) -> None:
    run = Recorder(computer, failing=("install",))
    with pytest.raises(NoBrowser, match="Unable to locate package"):
        install_browser(computer.machine(), run, lambda _: None, is_root=True)

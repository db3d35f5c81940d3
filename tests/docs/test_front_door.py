"""Where set-up cannot go on, it ends with one sentence that names the fix; where nothing is to do, it is quiet."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# All that the script may count on besides bash.
TOOLS = ("cat", "cut", "dirname", "env", "id", "mkdir", "rm", "sha256sum", "tail")

# Where packages for Node are, by the stamp that says that they are installed.
NODE_PACKAGES = {"puppeteer": "tests/cdp/puppeteer", "cdp-clients": "tests/cdp_clients"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout before set-up, on a machine with nothing but the basic tools."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "bin").mkdir()
    script = (
        (ROOT / "tools" / "setup").read_text().replace("\ndistribution=/usr/bin\n", f"\ndistribution={tmp_path}/usr\n")
    )
    assert str(tmp_path) in script
    (tmp_path / "tools" / "setup").write_text(script)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def program(checkout: Path, name: str, script: str) -> None:
    path = checkout / "bin" / name
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def setup(checkout: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(shutil.which("bash")), "tools/setup", *words],
        cwd=checkout,
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)} | more,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_without_python_the_fix_is_named(checkout: Path) -> None:
    result = setup(checkout, "run")
    assert result.returncode == 1
    assert result.stderr.startswith("set-up failed: no Python 3.11 or newer; install one")
    assert len(result.stderr.splitlines()) == 1


def test_a_python_that_is_too_old_is_passed_over(checkout: Path) -> None:
    program(checkout, "python3", "exit 1")
    assert "no Python 3.11 or newer" in setup(checkout, "run").stderr


def python(checkout: Path, place: str, *, has_venv: bool) -> None:
    """A Python in that directory, which can make virtual environments or not, and says which one it is."""
    (checkout / place).mkdir(exist_ok=True)
    lacking = "exit 0" if has_venv else "exit 1"
    script = f'case "$2" in *ensurepip*) {lacking} ;; esac; case "$1" in -m) exit 1 ;; esac; exec {sys.executable} "$@"'
    path = checkout / place / "python3"
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("of_distribution", "chosen"), [(True, "usr"), (False, "bin")])
def test_the_distributions_python_is_taken_unless_it_can_make_no_environment(
    checkout: Path, of_distribution: bool, chosen: str
) -> None:
    python(checkout, "usr", has_venv=of_distribution)
    python(checkout, "bin", has_venv=True)
    assert f"creating .venv with {checkout}/{chosen}/python3" in setup(checkout, "run").stdout


def test_the_python_that_is_named_is_taken_before_any_other(checkout: Path) -> None:
    for place in ("usr", "bin", "own"):
        python(checkout, place, has_venv=True)
    assert (
        f"creating .venv with {checkout}/own/python3" in setup(checkout, "run", PYTHON=f"{checkout}/own/python3").stdout
    )


def test_without_venv_and_without_a_way_to_install_it_the_package_is_named(checkout: Path) -> None:
    program(checkout, "python3", f'case "$2" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@"')
    result = setup(checkout, "run")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert result.returncode == 1
    assert f"run 'sudo apt-get install python{version}-venv'" in result.stderr.splitlines()[-1]


def test_packages_that_cannot_be_installed_end_with_pips_words_and_the_fix(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!{shutil.which("bash")}\n[ "$3" = --version ] && exit 0\necho no such network; exit 1\n')
    python.chmod(0o755)
    lines = setup(checkout, "run").stderr.splitlines()
    assert lines[0] == "no such network"
    assert lines[-1].startswith("set-up failed: pip could not install the packages")


@pytest.fixture
def prepared(checkout: Path) -> Path:
    """A checkout after its set-up, with programs in place of Python and the browser that always succeed."""
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".setup").mkdir()
    for name in ("python", "tabherd"):
        (checkout / ".venv" / "bin" / name).symlink_to(str(shutil.which("true")))
    (checkout / ".setup" / "browser").write_text(str(shutil.which("true")))
    for stamp, packages in NODE_PACKAGES.items():
        (checkout / packages / "node_modules").mkdir(parents=True)
        both = b""
        for name in ("package.json", "package-lock.json"):
            shutil.copy(ROOT / packages / name, checkout / packages)
            both += (checkout / packages / name).read_bytes()
        (checkout / ".setup" / stamp).write_text(hashlib.sha256(both).hexdigest()[:16])
    balancers = checkout / ".setup" / "balancers" / "bin"
    balancers.mkdir(parents=True)
    for name in ("nginx", "haproxy"):
        (balancers / name).symlink_to(str(shutil.which("true")))
    first = setup(checkout, "dev")
    assert first.stdout == "set-up: installing tabherd[dev] and what it depends on\n"
    return checkout


def test_what_is_set_up_already_is_not_done_again(prepared: Path) -> None:
    again, lesser = setup(prepared, "dev"), setup(prepared, "run")
    assert [(each.returncode, each.stdout, each.stderr) for each in (again, lesser)] == [(0, "", "")] * 2


def test_a_changed_dependency_is_installed(prepared: Path) -> None:
    with (prepared / "constraints.txt").open("a") as constraints:
        constraints.write("left-pad==1.0\n")
    assert "installing" in setup(prepared, "dev").stdout


def test_a_browser_that_was_removed_is_looked_for_again(prepared: Path) -> None:
    (prepared / ".setup" / "browser").write_text("/nowhere/chromium")
    assert "looking for a browser" in setup(prepared, "run").stdout


def test_load_balancers_that_cannot_be_had_are_named_with_the_way_to_get_them(prepared: Path) -> None:
    (prepared / ".setup" / "balancers" / "bin" / "haproxy").unlink()
    program(prepared, "apt-get", "echo no such package; exit 1")
    script = prepared / "tools" / "setup"
    # Whether this machine has one is no matter here.
    script.write_text(script.read_text().replace(":/usr/sbin", ""))
    lines = setup(prepared, "dev").stderr.splitlines()
    assert lines[0] == "no such package"
    assert lines[-1].endswith("'apt-get install nginx haproxy').")


def test_an_unknown_wish_is_refused(checkout: Path) -> None:
    result = setup(checkout)
    assert result.returncode == 1
    assert "tools/setup run" in result.stderr


def test_stopping_where_nothing_was_set_up_is_fine(checkout: Path) -> None:
    shutil.copy(ROOT / "Makefile", checkout / "Makefile")
    done = subprocess.run(
        ["make", "-s", "down"],
        cwd=checkout,
        env=os.environ | {"MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Nothing is set up here, so nothing runs.\n"


def test_constraints_are_plain_versions_without_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if "://" in line or "==" not in line or " " in line] == []

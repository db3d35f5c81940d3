"""Safeguards that only a real page can show, each with the test that fails when the safeguard is switched off."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

# The environment variable that names the safeguard which is off.
NAME_VARIABLE = "TABHERD_TESTS_WITHOUT"


class Safeguard(NamedTuple):
    """One safeguard: the function that is replaced, what replaces it, and the test that notices."""

    # Its module, a colon, and its path in there.
    function: str
    instead: Callable[..., Any]
    witness: str

    @property
    def off(self) -> str:
        """What is switched off, in words."""
        where = self.function.replace("tabherd.", "").replace(":", ".")
        what = (self.instead.__doc__ or "").rstrip(".")
        return f"`{where}` {what}"

    def switch_off(self) -> None:
        """Replace the function in this process."""
        module, _, path = self.function.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for step in owners:
            owner = getattr(owner, step)
        # A safeguard that was renamed must not pass for one that nobody notices.
        assert hasattr(owner, name), self.function
        setattr(owner, name, self.instead)


def nothing(*args: Any, **kwargs: Any) -> None:
    """does nothing."""


async def nothing_async(*args: Any, **kwargs: Any) -> None:
    """does nothing."""


def false(*args: Any, **kwargs: Any) -> bool:
    """always answers no."""
    return False


def true(*args: Any, **kwargs: Any) -> bool:
    """always answers yes."""
    return True


async def true_async(*args: Any, **kwargs: Any) -> bool:
    """always answers yes."""
    return True


def no_flags(*args: Any, **kwargs: Any) -> list[str]:
    """gives no flags."""
    return []


def ordinary_port(*args: Any, **kwargs: Any) -> int:
    """gives any port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


async def own_world(port: Any, frame_id: str) -> int:
    """gives the page's own world."""
    worlds: list[dict[str, Any]] = []
    stop = port.listen("Runtime.executionContextCreated", lambda event: worlds.append(event["context"]))
    # Chromium lists those that there are before it answers.
    await port.call("Runtime.enable")
    stop()
    await port.call("Runtime.disable")
    kinds = {world["id"]: world["auxData"] for world in worlds}
    found: int = next(id for id, kind in kinds.items() if kind["isDefault"] and kind["frameId"] == frame_id)
    return found


async def unguarded(tab: Any, search: Any, bits: int, progress: Any) -> Any:
    """lets go of the guard before the press."""
    from tabherd.actions.locate import locate

    held = await locate(tab, search, progress)
    await held.world.run("releaseGuard")
    return held


SAFEGUARDS: dict[str, Safeguard] = {
    "a page that is closed runs no script any more": Safeguard(
        "tabherd.browsers.driver:DrivenBrowser._silence",
        true_async,
        "tests/browsers/test_driver.py::test_a_page_that_spins_is_not_left_to_chromium_to_drop",
    ),
    "a page that is replaced is gone, even if it has crashed": Safeguard(
        "tabherd.browsers.driver:DrivenBrowser.close_tab",
        nothing_async,
        "tests/browsers/test_driver.py::test_a_crashed_page_can_be_closed",
    ),
    "workers end with the page that is replaced": Safeguard(
        "tabherd.browsers.workers:end_workers",
        nothing_async,
        "tests/browsers/test_workers.py::test_a_worker_that_is_on_its_way_is_waited_for",
    ),
    "a dialog that opens is answered": Safeguard(
        "tabherd.browsers.driver:ChromiumTab._answer_dialog",
        nothing,
        "tests/browsers/test_chromium.py::test_a_dialog_does_not_block_the_page",
    ),
    "a page that was forbidden to save files saves none": Safeguard(
        "tabherd.browsers.downloads:Downloads.forbid",
        nothing_async,
        "tests/browsers/test_downloads.py::test_forbidden_again_a_context_saves_nothing_more",
    ),
    "a page cannot reach the debug port of its browser": Safeguard(
        "tabherd.browsers.debug_port:reserve",
        ordinary_port,
        "tests/browsers/test_debug_port.py::test_a_page_cannot_reach_the_debug_port_by_any_way_under_any_name"
        "[127.0.0.1]",
    ),
    "a page that is in no context of ours keeps to the network policy": Safeguard(
        "tabherd.browsers.chromium:_network_flags",
        no_flags,
        "tests/egress/test_chromium.py::test_a_page_without_our_context_is_behind_the_policy_too",
    ),
    "nobody pastes what another session of the browser has selected": Safeguard(
        "tabherd.browsers.chromium:_selection_settings",
        no_flags,
        "tests/cdp_hostile/test_foreign.py::test_nobody_pastes_what_another_has_selected[bound]",
    ),
    "what a page redefines is not met by our script": Safeguard(
        "tabherd.actions.world:World._context",
        staticmethod(own_world),
        "tests/hostile/test_pages.py::test_a_page_that_shadows_what_is_built_in_is_driven_like_any_other"
        "[broken built-ins]",
    ),
    "a press lands on the element that was looked for or on none": Safeguard(
        "tabherd.actions.pointer:approached",
        unguarded,
        "tests/actions/test_pointer.py::test_what_takes_the_place_of_a_vanishing_element_is_not_pressed",
    ),
    "what a CDP client sends waits while a person has the tab": Safeguard(
        "tabherd.edge.cdp.parking:Parking.is_waiting",
        false,
        "tests/live/test_chromium.py::test_what_a_cdp_client_sends_waits_while_a_person_drives",
    ),
    "a CDP client gives a page no file but its session's": Safeguard(
        "tabherd.edge.cdp.ownership:Ownership.may_read",
        true,
        "tests/cdp_hostile/test_files.py::test_no_file_of_the_machine_is_put_into_a_page",
    ),
}

"""Sends a page elsewhere, also one that would rather open dialogs for ever.

Chromium lets nobody answer a dialog that is open at the moment in which the next document is ready, and that document
then waits for the answer for ever (seen in the light headless build). A page that opens one after the other could never
be left: so it is frozen first.
"""

from __future__ import annotations

from typing import Any, Final

from .. import wire
from ..actions.progress import Progress
from ..browsers.port import TabPort
from .leases import Perform

# What leaves the page that is there.
LEAVING: Final = (wire.Navigate, wire.Back, wire.Forward, wire.Reload)


async def leave(perform: Perform, port: TabPort, action: wire.AnyAction, progress: Progress) -> Any:
    """Perform one of these."""
    if not port.dialogs.leave():
        return await perform(port, action, progress)
    await port.freeze()
    try:
        return await perform(port, action, progress)
    finally:
        # Whichever page is there now.
        port.thaw()

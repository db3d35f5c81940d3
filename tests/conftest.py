"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes is the machine's business.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell starts what it runs in the background deaf to Ctrl-C, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

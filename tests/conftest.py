"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background deaf to Ctrl-C, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

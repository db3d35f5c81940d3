"""What holds for all tests."""

from __future__ import annotations

import functools
import signal

from httpx._transports import default as httpx_transports
from hypothesis import settings

# How long an example takes is the machine's business.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell starts what it runs in the background deaf to Ctrl-C, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every client of httpx reads the certificates of all the world's authorities, which takes longer than most requests of
# tests, none of which goes anywhere but to this machine, without TLS. So a process reads them once.
httpx_transports.create_ssl_context = functools.cache(httpx_transports.create_ssl_context)

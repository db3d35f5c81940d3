"""Imported by Python before anything else: the time of day is off by `CLOCK_OFF_S` seconds, in this process alone."""

import os
import time

_off_s = int(os.environ["CLOCK_OFF_S"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _off_s
time.time_ns = lambda: _time_ns() + _off_s * 1_000_000_000

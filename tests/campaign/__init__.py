"""Campaigns against real servers with real browsers: `crash` kills whatever can be killed, `soak` goes on for an hour.

Both have the same crowd of real clients at work, which notes what it was told for sure; afterwards that is compared
with what there is. `python -m tests.campaign --help`.
"""

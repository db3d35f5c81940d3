"""The race catalogue: every race shown to happen without its guard, and not with it.

Each test has one of the ids of `docs/races.md` in its name. None of them is left to chance: who is in the race waits at
the point between looking and acting until the other has come as far as it can, which without the guard is the same
point, and with it the end of the line.
"""

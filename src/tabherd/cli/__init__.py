"""The `tabherd` command."""

import sys

# httpx has a command line of its own, which it loads with all that draws its colours: a quarter of what a command of
# ours takes in all, and nothing of ours calls it. Without it httpx is the same library.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

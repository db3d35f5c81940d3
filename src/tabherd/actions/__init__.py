"""What can be done to a page: one function per kind of action."""

from .engine import perform
from .progress import Progress

__all__ = ["Progress", "perform"]

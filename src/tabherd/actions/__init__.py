"""What can be done to a page: one function per kind of action."""

from .engine import perform

__all__ = ["perform"]

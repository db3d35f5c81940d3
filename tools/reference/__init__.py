"""The reference pages, one module each: a `write` that yields the lines of its page."""

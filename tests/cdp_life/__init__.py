"""The life of a CDP client at a real server: getting in, waiting, being held up, being turned away, leaving."""

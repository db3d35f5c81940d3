"""Passing requests and sockets on to the node that has what they are for."""

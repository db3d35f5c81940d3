"""What benchmarks stand on: a server as a user starts it, a browser without one, a page, memory, this machine."""

"""The whole thing: a real broker process, a real Chromium and real HTTP."""

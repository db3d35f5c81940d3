"""Pure decisions: no clock, no chance, no I/O. Time and chance are arguments."""

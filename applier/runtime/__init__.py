"""Settings in, a running applier out: the tick, the loop, the wiring and the background threads."""

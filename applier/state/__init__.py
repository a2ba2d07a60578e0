"""The deltas of an operator's inputs in; accumulators, minima and maxima, top-k buffers and fixpoints out."""

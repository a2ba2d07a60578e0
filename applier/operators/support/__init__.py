"""What several operators share: inputs, key filters, accumulators, join matches and operand deltas."""

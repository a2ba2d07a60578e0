"""Change rows of one relation in, snapshots and LSN ranges of that relation out."""

"""pg-trickle-cdc: PostgreSQL's write-ahead log in, change rows on Kafka topics out, exactly once."""

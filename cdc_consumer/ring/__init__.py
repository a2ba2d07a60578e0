"""Between receiving and publishing: a bounded queue that lets the server go on while the sink is slow or away."""

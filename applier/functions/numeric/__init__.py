"""Functions over integers, floats and numerics in, Spark SQL out."""

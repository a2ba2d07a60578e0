"""Functions that Spark lacks, in Java: sources here, compiled at set-up by the compiler Spark brings along."""

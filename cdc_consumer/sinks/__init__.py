"""Where change rows are written: Kafka topics or buffer tables, with the progress that a restart resumes from."""

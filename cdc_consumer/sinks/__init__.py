"""The Kafka side: topics, schemas, transactions, and the progress that a restart resumes from."""

"""The SQL interface of schema `pgtrickle`: functions in `api/`, numbered migrations, descriptions of settings."""

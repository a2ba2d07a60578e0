"""Topics -> traces -> differential operators -> stream tables in PostgreSQL, in Delta and on a topic."""

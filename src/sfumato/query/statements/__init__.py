"""The reader of SQL: from the text of a statement to the queries that answer it."""

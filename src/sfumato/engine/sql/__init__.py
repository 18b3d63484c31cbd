"""PostgreSQL and MariaDB (or MySQL): the database counts, this process sees tallies only."""

"""The embedded engine: DuckDB over CSV, Parquet and frames."""

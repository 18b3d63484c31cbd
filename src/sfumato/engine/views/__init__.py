"""SQL that joins linked tables and bounds the contribution of each unit."""

"""The codebook of a synthetic table: what was measured, with which noise, and what that means for each column."""

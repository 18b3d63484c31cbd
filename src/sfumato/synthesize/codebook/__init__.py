"""The codebook of a synthetic table: the measured tables, their noise, and the resulting errors of each column."""

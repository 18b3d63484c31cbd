"""Searches over full-domain recodings."""

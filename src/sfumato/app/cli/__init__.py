"""The command line.

Conventions.  A module a command, importing only typer, the standard library, ``sfumato.errors`` and its
neighbors here at the top, everything else inside the function, so that ``sfumato --help`` stays fast.
Results go to standard output (as text, or as JSON under ``--json``), progress and notes to standard
error.  Exit codes: 0 done, 1 failed, 2 wrong input, 3 budget refused.
"""

"""The programs beside the tests of this folder that are no tests."""

collect_ignore = ["private_pgm.py"]  # a process of its own runs it, because it needs JAX, which starts threads

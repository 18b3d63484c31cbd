"""The commands ``serve`` and ``key``, found by the entry points of the group ``sfumato-commands``."""

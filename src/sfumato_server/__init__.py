"""The server: HTTP over exactly the functions that Python and the command line call."""

"""Front ends for people and programs.  They parse arguments, call one function and show its result."""

"""Front ends for people and programs: parse, call one function, show.  No logic."""

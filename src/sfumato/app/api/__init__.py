"""What may be asked: one model a verb, with its fields, its limits and what it refuses, for every front end.

The command line and the page fill them in, HTTP takes them as JSON, and the OpenAPI document is made from them.
"""

"""The models of requests, with their fields and limits, for every front end.

The command line and the page fill them in.  HTTP reads them from JSON.  The OpenAPI document is made from them.
"""

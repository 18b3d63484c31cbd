"""The server: HTTP, pages and jobs over the functions that Python and the command line call.

The server imports the library; no module of the library imports the server.  ``sfumato serve`` and ``sfumato key`` are
in ``commands``, and the command line finds them by entry points.  ``pip install 'sfumato[server]'`` brings the rest.

The nouns:

* ``Settings`` (``application``): the options of ``sfumato serve``, for every worker process.
* ``RequestGuard`` (``access``): what every request passes before its route: lengths, hosts, keys, rates.
* ``Registry`` (``registry``) with its ``Key`` and ``Dataset``: who may enter, and what is served under which budget.
* ``Sessions`` (``sessions``): who is logged in on the pages.
* ``Provider`` (``openid``): the provider of identities by which people log in.
* ``Service`` (``service``): what one worker holds: registry, tables and ledgers.
* ``Snapshots`` (``sources``): the rows that a dataset is answered from.
* ``Job`` (``work``): a release that takes longer than a request.
* ``Approvals`` and ``Grants`` (``rules``): who may spend what, checked while a release is charged.
* ``RefusalError`` (``problems``): a refusal as HTTP states it (RFC 9457).
"""

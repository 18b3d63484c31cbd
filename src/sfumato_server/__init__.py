"""The server: HTTP, pages and background jobs over the functions that Python and the command line call.

The server imports the library, and no module of the library imports the server.  The package ``commands`` has ``sfumato
serve`` and ``sfumato key``; the command line finds them by entry points.  ``pip install 'sfumato[server]'`` installs
the dependencies.

The nouns:

* ``Settings`` (``application``): the options of ``sfumato serve``, for every worker process.
* ``RequestGuard`` (``access``): the middleware that every request passes: body limits, security headers, the log.
* ``Registry`` (``registry``) with its ``Key`` and ``Dataset``: the keys, and the datasets with their budgets.
* ``Sessions`` (``sessions``): the users who are logged in on the pages.
* ``Provider`` (``openid``): the identity provider with which people log in.
* ``Service`` (``service``): the state of one worker: registry, tables and ledgers.
* ``Snapshots`` (``sources``): the copies of tables from which answers are computed.
* ``Job`` (``work``): a release that takes longer than a request.
* ``Approvals`` and ``Grants`` (``rules``): the rules on spending, which each charge checks.
* ``RefusalError`` (``problems``): a refusal as HTTP states it (RFC 9457).
"""

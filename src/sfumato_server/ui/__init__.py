"""The pages: rendered by the server, usable without the internet, over the same functions as HTTP."""

"""``python -m sfumato``: the command line if its program is not on the path."""

from sfumato.app.cli.main import program

if __name__ == "__main__":
    program()

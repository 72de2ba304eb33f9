"""`python -m s4q` is the command `s4q`."""

from s4q.cli import app

if __name__ == "__main__":
    app(prog_name="s4q")

"""`python -m ottla` is the same as `ottla`."""

from ottla.cli.main import run

if __name__ == "__main__":
    run()

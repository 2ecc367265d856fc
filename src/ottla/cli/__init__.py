"""The command line: one module per noun, put together in `main`. A client like any other, but for `serve`."""

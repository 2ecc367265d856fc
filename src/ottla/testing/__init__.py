"""A real broker for the tests of those who use Ottla: see `plugin`."""

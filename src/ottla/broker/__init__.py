"""The whole broker without its sockets: requests in, responses out."""

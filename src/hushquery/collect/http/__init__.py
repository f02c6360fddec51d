"""The collector's listeners: routes, limits of requests and connections, pages and metrics."""

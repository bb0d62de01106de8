"""The service: jobs, embedding lookup, nearest neighbours, client, command line and page."""
